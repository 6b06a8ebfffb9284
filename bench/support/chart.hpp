#ifndef BIDE_BENCH_SUPPORT_CHART_HPP
#define BIDE_BENCH_SUPPORT_CHART_HPP

// Draws the medians of the first column of all tables as bars, in SVG without scripts and fonts. The
// colours follow the reader's light or dark scheme. Tables with the same name up to the first '/' share
// a panel; each is a group of bars in it. The scale is logarithmic.

#include "support/report.hpp"
#include "support/stats.hpp"
#include "support/table.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

class chart {
public:
    chart(std::ostream& out, const std::vector<table>& tables) : out_(out) {
        for (const table& t : tables) {
            const std::string title = t.name.substr(0, t.name.find('/'));
            if (panels_.empty() || panels_.back().title != title) {
                panels_.push_back({title, {}});
            }
            panels_.back().groups.push_back(&t);
            for (const row& r : t.rows) {
                if (series_of(r.name) == series_.size()) {
                    series_.push_back(r.name);
                }
            }
        }
    }

    void draw(std::string_view title, std::string_view subtitle) {
        const double legend_top = 56;
        const double top = legend_top + 18 * std::ceil(double(series_.size()) / 4) + 16;
        const double rows = std::ceil(double(panels_.size()) / 2);
        const double height = top + rows * panel_height + 8;
        out_ << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << width << ' ' << height
             << "\" font-family=\"sans-serif\" font-size=\"11\">\n"
                "<style>text,.ink{fill:#222}.quiet{fill:#666}.line{fill:#ccc}.paper{fill:#fff}"
                "@media(prefers-color-scheme:dark){text,.ink{fill:#ddd}.quiet{fill:#999}"
                ".line{fill:#444}.paper{fill:#0d1117}}</style>\n";
        rectangle(0, 0, width, height, "class=\"paper\"");
        text(16, 24, title, "font-size=\"16\" font-weight=\"bold\"");
        text(16, 42, subtitle, "class=\"quiet\"");
        for (std::size_t i = 0; i < series_.size(); ++i) {
            const double x = 16 + double(i % 4) * (width - 32) / 4;
            const double y = legend_top + 18 * double(i / 4);
            rectangle(x, y, 12, 12, colour(i));
            text(x + 17, y + 10, series_[i], "");
        }
        for (std::size_t i = 0; i < panels_.size(); ++i) {
            draw_panel(panels_[i], double(i % 2) * width / 2, top + double(i / 2) * panel_height);
        }
        out_ << "</svg>\n";
    }

private:
    struct panel {
        std::string title;
        std::vector<const table*> groups;
    };

    // The decades that a panel's values are within.
    struct scale {
        double low;
        double high;
        double y(double value, double top, double bottom) const {
            return bottom - (std::log10(value) - low) / (high - low) * (bottom - top);
        }
    };

    static constexpr double width = 1000;
    static constexpr double panel_height = 250;

    std::size_t series_of(const std::string& name) const {
        const auto found = std::find(series_.begin(), series_.end(), name);
        return static_cast<std::size_t>(found - series_.begin());
    }

    // The palette of Okabe and Ito, which colour-blind readers can tell apart.
    static std::string colour(std::size_t series) {
        static constexpr const char* palette[] = {"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                                  "#d55e00", "#56b4e9", "#b8a800", "#777777",
                                                  "#7b3294", "#a6611a", "#80cdc1"};
        return "fill=\"" + std::string(palette[series % std::size(palette)]) + '"';
    }

    static scale scale_of(const panel& p) {
        double least = 1e300;
        double most = 1e-300;
        for (const table* t : p.groups) {
            for (const row& r : t->rows) {
                if (const double value = median(values(r, 0)); value > 0) {
                    least = std::min(least, value);
                    most = std::max(most, value);
                }
            }
        }
        // Room below the least, so that it has a bar; one decade at least.
        const double low = std::floor(std::log10(least) - 0.1);
        return {low, std::max(std::ceil(std::log10(most)), low + 1)};
    }

    void draw_panel(const panel& p, double x, double y) {
        const double left = x + 56;
        const double right = x + width / 2 - 12;
        const double top = y + 26;
        const double bottom = y + panel_height - 40;
        const column& measured = p.groups.front()->columns.front();
        text(x + 16, y + 14, p.title + " (" + measured.name + ", " + measured.unit + ")",
             "font-size=\"13\" font-weight=\"bold\"");
        const scale s = scale_of(p);
        for (double decade = s.low; decade <= s.high; ++decade) {
            const double value = std::pow(10, decade);
            const double at = s.y(value, top, bottom);
            rectangle(left, at, right - left, 0.5, "class=\"line\"");
            text(left - 6, at + 4, number(value, decade < 0 ? int(-decade) : 0),
                 "text-anchor=\"end\"");
        }
        const double pitch = (right - left) / double(p.groups.size());
        for (std::size_t i = 0; i < p.groups.size(); ++i) {
            const double at = left + double(i) * pitch;
            draw_group(*p.groups[i], s, at, pitch, top, bottom);
            const std::string& name = p.groups[i]->name;
            // Narrow neighbours in turns, so that their names do not meet.
            text(at + pitch / 2, bottom + (i % 2 == 0 || pitch > 100 ? 14 : 28),
                 name.substr(std::min(name.size(), name.find('/') + 1)), "text-anchor=\"middle\"");
        }
    }

    void draw_group(const table& t, const scale& s, double left, double pitch, double top,
                    double bottom) {
        const double bar = std::min(0.85 * pitch / double(t.rows.size()), 24.0);
        double x = left + (pitch - bar * double(t.rows.size())) / 2;
        for (const row& r : t.rows) {
            const double value = median(values(r, 0));
            if (value > 0) {
                const double y = s.y(value, top, bottom);
                rectangle(x, y, bar * 0.92, bottom - y, colour(series_of(r.name)),
                          r.name + ": " + number(value, t.columns.front().digits) + ' ' +
                              t.columns.front().unit);
            }
            x += bar;
        }
    }

    // `look` is its class or its fill. A pointer that rests on it shows `note`.
    void rectangle(double x, double y, double w, double h, std::string_view look,
                   std::string_view note = "") {
        out_ << "<rect x=\"" << x << "\" y=\"" << y << "\" width=\"" << w << "\" height=\"" << h
             << "\" " << look << "><title>";
        escape(note);
        out_ << "</title></rect>\n";
    }

    void text(double x, double y, std::string_view what, std::string_view attributes) {
        out_ << "<text x=\"" << x << "\" y=\"" << y << "\" " << attributes << '>';
        escape(what);
        out_ << "</text>\n";
    }

    void escape(std::string_view what) {
        for (const char c : what) {
            switch (c) {
            case '<': out_ << "&lt;"; break;
            case '&': out_ << "&amp;"; break;
            default: out_ << c;
            }
        }
    }

    std::ostream& out_;
    std::vector<panel> panels_;
    std::vector<std::string> series_; // in the order of their first appearance
};

inline void write_chart(std::ostream& out, std::string_view title, std::string_view subtitle,
                        const std::vector<table>& tables) {
    chart(out, tables).draw(title, subtitle);
}

} // namespace bench

#endif
