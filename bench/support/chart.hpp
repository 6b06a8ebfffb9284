#ifndef BIDE_BENCH_SUPPORT_CHART_HPP
#define BIDE_BENCH_SUPPORT_CHART_HPP

// Draws the medians of the first column of all tables as bars, in SVG without scripts and fonts. The
// colours follow the reader's light or dark scheme. Each table is a panel. Its rows are sorted, the
// best first, so a panel shows at once what is faster than bide. The scale is linear and begins at
// zero. Where less is better, a bar ends at `most_times` times the best value of bide. A longer one is
// cut off, and has a gap to say so; the number beside it is its value. A number with "!" was measured
// while other programs used the processors.

#include "support/report.hpp"
#include "support/stats.hpp"
#include "support/table.hpp"

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bench {

class chart {
public:
    chart(std::ostream& out, const std::vector<table>& tables) : out_(out) {
        for (const table& t : tables) {
            panel p = panel_of(t);
            if (!p.bars.empty()) {
                panels_.push_back(std::move(p));
            }
        }
    }

    // `lines` stand below the title: the machine, the command.
    void draw(std::string_view title, const std::vector<std::string>& given) {
        const std::vector<std::string> lines = broken(given);
        const double top = 34 + line_height * double(lines.size()) + 10;
        double height = top;
        for (std::size_t i = 0; i < panels_.size(); i += columns) {
            height += height_of_row(i);
        }
        out_ << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << width << ' ' << height
             << "\" font-family=\"sans-serif\" font-size=\"13\">\n<title>";
        escape(title);
        out_ << "</title>\n"
                "<style>text{fill:#1f2328}.quiet{fill:#59636e}.paper{fill:#fff}.peer{fill:#afb8c1}"
                ".bide{fill:#0969da}.own{fill:#0550ae;font-weight:bold}"
                "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.quiet{fill:#9198a1}"
                ".paper{fill:#0d1117}.peer{fill:#57606a}.bide{fill:#4493f8}.own{fill:#79c0ff}}"
                "</style>\n";
        rectangle(0, 0, width, height, "paper");
        text(margin, 24, title, "font-size=\"18\" font-weight=\"bold\"");
        double y = 34;
        for (const std::string& line : lines) {
            y += line_height;
            text(margin, y, line, "class=\"quiet\"");
        }
        y = top;
        for (std::size_t i = 0; i < panels_.size(); ++i) {
            draw_panel(panels_[i], double(i % columns) * width / columns, y);
            if (i % columns == columns - 1) {
                y += height_of_row(i - i % columns);
            }
        }
        out_ << "</svg>\n";
    }

private:
    struct bar {
        std::string name;
        double value;
        bool is_bide;
        bool is_noisy;
    };
    struct panel {
        const table* of;
        bool more_is_better;
        double end; // of the scale
        std::vector<bar> bars;
    };

    static constexpr std::size_t columns = 2;
    static constexpr double width = 1000;
    static constexpr double margin = 16;
    static constexpr double line_height = 17;
    static constexpr double bar_height = 19;
    static constexpr double head_height = 44;
    static constexpr double name_width = 214;
    static constexpr double number_width = 62;
    static constexpr double most_times = 6;
    static constexpr std::size_t longest_line = 130;

    // Lines that fit, broken after a blank or a '|'.
    static std::vector<std::string> broken(const std::vector<std::string>& given) {
        std::vector<std::string> lines;
        for (std::string rest : given) {
            while (rest.size() > longest_line) {
                const std::size_t last = rest.find_last_of(" |", longest_line - 1);
                const std::size_t end = last == std::string::npos ? longest_line : last + 1;
                lines.push_back(rest.substr(0, end));
                rest.erase(0, end);
            }
            lines.push_back(std::move(rest));
        }
        return lines;
    }

    static panel panel_of(const table& t) {
        panel p{&t, t.columns.front().unit == "Mop/s", 0, {}};
        double best = 0;
        for (const row& r : t.rows) {
            if (const double value = median(values(r, 0)); value > 0) {
                const bool is_bide = r.name.starts_with("bide");
                p.bars.push_back({r.name, value, is_bide, r.is_noisy()});
                p.end = std::max(p.end, value);
                best = is_bide && (best == 0 || value < best) ? value : best;
            }
        }
        if (!p.more_is_better && best > 0) {
            p.end = std::min(p.end, most_times * best);
        }
        std::stable_sort(p.bars.begin(), p.bars.end(), [&](const bar& a, const bar& b) {
            return p.more_is_better ? a.value > b.value : a.value < b.value;
        });
        return p;
    }

    double height_of_row(std::size_t first) const {
        std::size_t bars = 0;
        for (std::size_t i = first; i < std::min(first + columns, panels_.size()); ++i) {
            bars = std::max(bars, panels_[i].bars.size());
        }
        return head_height + bar_height * double(bars) + 14;
    }

    void draw_panel(const panel& p, double x, double y) {
        const column& measured = p.of->columns.front();
        text(x + margin, y + 16, p.of->name, "font-weight=\"bold\"");
        text(x + margin, y + 33,
             p.of->note.substr(0, 60) + (p.of->note.empty() ? "" : "; ") + measured.unit +
                 (p.more_is_better ? ", more is better" : ", less is better"),
             "class=\"quiet\" font-size=\"12\"");
        const double left = x + margin + name_width;
        const double room = width / columns - 2 * margin - name_width - number_width;
        y += head_height;
        for (const bar& b : p.bars) {
            text(left - 8, y + 13, b.name,
                 b.is_bide ? "text-anchor=\"end\" class=\"own\"" : "text-anchor=\"end\"");
            const char* const look = b.is_bide ? "bide" : "peer";
            double end = left + room * std::min(b.value / p.end, 1.0);
            rectangle(left, y + 2, std::max(end - left, 1.0), bar_height - 5, look);
            if (b.value > p.end * 1.001) {
                rectangle(end - 14, y + 1, 5, bar_height - 3, "paper");
            }
            text(end + 6, y + 13, number(b.value, digits_of(b.value)) + (b.is_noisy ? " !" : ""),
                 b.is_bide ? "class=\"own\"" : "");
            y += bar_height;
        }
    }

    // Two significant digits at least.
    static int digits_of(double value) {
        int digits = value < 100 ? 1 : 0;
        for (; value < 1 && digits < 4; value *= 10) {
            ++digits;
        }
        return digits;
    }

    void rectangle(double x, double y, double w, double h, std::string_view look) {
        out_ << "<rect x=\"" << x << "\" y=\"" << y << "\" width=\"" << w << "\" height=\"" << h
             << "\" class=\"" << look << "\"/>\n";
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
};

inline void write_chart(std::ostream& out, std::string_view title,
                        const std::vector<std::string>& lines, const std::vector<table>& tables) {
    chart(out, tables).draw(title, lines);
}

} // namespace bench

#endif
