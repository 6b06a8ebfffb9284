// filter blurs a picture, or finds its edges, and shows parallel loops at work:
//
//   filter [--blur RADIUS | --edges] IN OUT      binary PGM (P5) or PPM (P6), 8 bits a sample
//   filter                                       tries both on a picture that it makes
//
// The blur is separable: one pass along the rows, one along the columns. Rows of a pass do not depend on each other, so
// each pass is one parallel_for over rows. The edges of a pixel depend on its neighbours in both directions, so there
// the picture is divided into tiles by fork-join. The result is compared with that of a serial run.

#include <bide/bide.hpp>
#include <bide/parallel/fork_join.hpp>
#include <bide/parallel/parallel_for.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::size_t most_bytes = std::size_t{1} << 30; // of the samples of a picture
constexpr int most_radius = 1'000;

struct picture {
    std::size_t width = 0;
    std::size_t height = 0;
    std::size_t channels = 1; // 1: grey, 3: red, green and blue
    std::vector<std::uint8_t> samples;

    std::size_t stride() const { return width * channels; }
    bool operator==(const picture&) const = default;
};

picture like(const picture& other) {
    return {other.width, other.height, other.channels,
            std::vector<std::uint8_t>(other.samples.size())};
}

// ---- Loops. Each calls body(row) for each row, one after the other or in parallel.

struct in_series {
    template <class Body> void rows(std::size_t count, const Body& body) const {
        for (std::size_t row = 0; row < count; ++row) {
            body(row);
        }
    }
    template <class First, class Second> void both(const First& first, const Second& second) const {
        first();
        second();
    }
};

struct in_parallel {
    bide::scheduler& workers;

    template <class Body> void rows(std::size_t count, const Body& body) const {
        bide::parallel_for(workers, std::size_t{0}, count, body);
    }
    template <class First, class Second> void both(const First& first, const Second& second) const {
        bide::join(workers, first, second);
    }
};

// ---- The blur: each sample becomes the mean of those at most `radius` away; the border is repeated.

// Blurs a line of `count` samples, which are `step` apart.
void blur_line(const std::uint8_t* from, std::uint8_t* to, std::size_t count, std::size_t step,
               std::size_t radius) {
    const auto at = [&](std::size_t i) {
        return std::uint32_t{from[std::min(i, count - 1) * step]};
    };
    const auto size = static_cast<std::uint32_t>(2 * radius + 1);
    std::uint32_t sum = at(0) * static_cast<std::uint32_t>(radius);
    for (std::size_t i = 0; i <= radius; ++i) {
        sum += at(i);
    }
    for (std::size_t i = 0; i < count; ++i) {
        to[i * step] = static_cast<std::uint8_t>((sum + size / 2) / size);
        sum += at(i + radius + 1);
        sum -= at(i > radius ? i - radius : 0);
    }
}

template <class Loops> picture blur(const Loops& loops, const picture& in, std::size_t radius) {
    picture along_rows = like(in);
    loops.rows(in.height, [&](std::size_t y) {
        for (std::size_t c = 0; c < in.channels; ++c) {
            const std::size_t at = y * in.stride() + c;
            blur_line(&in.samples[at], &along_rows.samples[at], in.width, in.channels, radius);
        }
    });
    picture out = like(in);
    loops.rows(in.stride(), [&](std::size_t x) {
        blur_line(&along_rows.samples[x], &out.samples[x], in.height, in.stride(), radius);
    });
    return out;
}

// ---- The edges: Sobel's operator. A tile is divided along its longer side until it is small.

struct tile {
    std::size_t left, top, right, bottom;
};

void edges_of_tile(const picture& in, picture& out, const tile& part) {
    for (std::size_t y = part.top; y < part.bottom; ++y) {
        const std::size_t rows[3] = {y == 0 ? 0 : y - 1, y, std::min(y + 1, in.height - 1)};
        for (std::size_t x = part.left; x < part.right; ++x) {
            const std::size_t columns[3] = {x == 0 ? 0 : x - 1, x, std::min(x + 1, in.width - 1)};
            for (std::size_t c = 0; c < in.channels; ++c) {
                const auto at = [&](int row, int column) {
                    return int{
                        in.samples[rows[row] * in.stride() + columns[column] * in.channels + c]};
                };
                const int across =
                    at(0, 2) + 2 * at(1, 2) + at(2, 2) - at(0, 0) - 2 * at(1, 0) - at(2, 0);
                const int down =
                    at(2, 0) + 2 * at(2, 1) + at(2, 2) - at(0, 0) - 2 * at(0, 1) - at(0, 2);
                out.samples[y * in.stride() + x * in.channels + c] =
                    static_cast<std::uint8_t>(std::min(std::abs(across) + std::abs(down), 255));
            }
        }
    }
}

template <class Loops>
void edges_of(const Loops& loops, const picture& in, picture& out, const tile& part) {
    constexpr std::size_t small = 64;
    const std::size_t width = part.right - part.left;
    const std::size_t height = part.bottom - part.top;
    if (width <= small && height <= small) {
        edges_of_tile(in, out, part);
        return;
    }
    tile first = part;
    tile second = part;
    if (width > height) {
        first.right = second.left = part.left + width / 2;
    } else {
        first.bottom = second.top = part.top + height / 2;
    }
    loops.both([&] { edges_of(loops, in, out, first); }, [&] { edges_of(loops, in, out, second); });
}

template <class Loops> picture edges(const Loops& loops, const picture& in) {
    picture out = like(in);
    edges_of(loops, in, out, {0, 0, in.width, in.height});
    return out;
}

// ---- Files

// Reads a number of the header, after blanks and comments. Nothing if there is none, or if it is above 2^31 - 1.
std::optional<std::size_t> header_number(std::string_view& rest) {
    while (!rest.empty()) {
        if (rest.front() == '#') {
            rest.remove_prefix(std::min(rest.find('\n'), rest.size()));
        } else if (std::string_view(" \t\r\n\v\f").find(rest.front()) != std::string_view::npos) {
            rest.remove_prefix(1);
        } else {
            break;
        }
    }
    std::int32_t number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc() || number < 0) {
        return std::nullopt;
    }
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    return static_cast<std::size_t>(number);
}

// Returns why the file is no picture, or an empty text. The size is checked before memory is allocated for it.
std::string decode(std::string_view file, picture& into) {
    if (!file.starts_with("P5") && !file.starts_with("P6")) {
        return "neither a binary PGM (P5) nor a binary PPM (P6)";
    }
    into.channels = file[1] == '5' ? 1 : 3;
    file.remove_prefix(2);
    const auto width = header_number(file);
    const auto height = width ? header_number(file) : std::nullopt;
    const auto greatest = height ? header_number(file) : std::nullopt;
    if (!greatest || file.empty()) {
        return "the header is damaged or incomplete";
    }
    if (*greatest == 0 || *greatest > 255) {
        return "the greatest sample is " + std::to_string(*greatest) + ", not 1 to 255";
    }
    file.remove_prefix(1); // one blank
    if (*width == 0 || *height == 0 || *width > most_bytes / into.channels / *height) {
        return std::to_string(*width) + " x " + std::to_string(*height) +
               " pixels: empty, or more than 1 GiB";
    }
    into.width = *width;
    into.height = *height;
    const std::size_t size = into.stride() * into.height;
    if (file.size() < size) {
        return "truncated: " + std::to_string(file.size()) + " of " + std::to_string(size) +
               " bytes";
    }
    const auto* const from = reinterpret_cast<const std::uint8_t*>(file.data());
    into.samples.assign(from, from + size);
    for (std::uint8_t& sample : into.samples) {
        if (sample > *greatest) {
            return "a sample is above the greatest sample of the header";
        }
        sample = static_cast<std::uint8_t>(sample * 255 / *greatest);
    }
    return {};
}

std::string read(const char* name, picture& into) {
    std::FILE* const file = std::fopen(name, "rb");
    if (file == nullptr) {
        return std::strerror(errno);
    }
    std::string bytes;
    std::string block(1 << 16, '\0');
    while (const std::size_t got = std::fread(block.data(), 1, block.size(), file)) {
        bytes.append(block, 0, got);
    }
    const int error = std::ferror(file) != 0 ? errno : 0;
    std::fclose(file);
    return error != 0 ? std::strerror(error) : decode(bytes, into);
}

bool write(const char* name, const picture& from) {
    std::ofstream file(name, std::ios::binary);
    file << (from.channels == 1 ? "P5\n" : "P6\n") << from.width << ' ' << from.height << "\n255\n";
    file.write(reinterpret_cast<const char*>(from.samples.data()),
               static_cast<std::streamsize>(from.samples.size()));
    return static_cast<bool>(file.flush());
}

// ---- The program

struct options {
    bool edges = false;
    std::size_t radius = 4;
};

// Returns nothing if the parallel run differs from the serial run.
std::optional<picture> apply(bide::scheduler& workers, const picture& in, const options& which) {
    const in_parallel parallel{workers};
    picture out = which.edges ? edges(parallel, in) : blur(parallel, in, which.radius);
    const picture serial =
        which.edges ? edges(in_series(), in) : blur(in_series(), in, which.radius);
    if (out != serial) {
        std::fprintf(stderr, "filter: the parallel run differs from the serial run\n");
        return std::nullopt;
    }
    return out;
}

// A white square on black: the samples near its sides are known. And noise, where each sample counts in the comparison.
int try_both() {
    picture in{300, 200, 1, std::vector<std::uint8_t>(300 * 200)};
    for (std::size_t y = 50; y < 150; ++y) {
        std::fill_n(in.samples.begin() + static_cast<std::ptrdiff_t>(y * 300 + 100), 100,
                    std::uint8_t{255});
    }
    picture noise{201, 157, 3, std::vector<std::uint8_t>(201 * 157 * 3)};
    std::uint32_t number = 1;
    for (std::uint8_t& sample : noise.samples) {
        number = number * 1'664'525 + 1'013'904'223;
        sample = static_cast<std::uint8_t>(number >> 24);
    }
    bide::scheduler workers;
    const auto blurred = apply(workers, in, {false, 2});
    const auto outlined = apply(workers, in, {true, 0});
    if (!blurred || !outlined || !apply(workers, noise, {false, 5}) ||
        !apply(workers, noise, {true, 0})) {
        return 1;
    }
    const auto of = [](const picture& p, std::size_t x, std::size_t y) {
        return p.samples[y * 300 + x];
    };
    const bool blur_is_right = of(*blurred, 150, 100) == 255 && of(*blurred, 98, 100) == 51 &&
                               of(*blurred, 101, 100) == 204 && of(*blurred, 97, 100) == 0;
    const bool edges_are_right = of(*outlined, 150, 100) == 0 && of(*outlined, 99, 100) == 255 &&
                                 of(*outlined, 100, 100) == 255 && of(*outlined, 98, 100) == 0;
    std::printf("blur: %s, edges: %s\n", blur_is_right ? "right" : "wrong",
                edges_are_right ? "right" : "wrong");
    return blur_is_right && edges_are_right ? 0 : 1;
}

int usage() {
    std::fprintf(stderr, "usage: filter [--blur RADIUS | --edges] IN OUT   (RADIUS: 0 to %d)\n",
                 most_radius);
    return 2;
}

} // namespace

int main(int argc, char** argv) {
    if (argc == 1) {
        return try_both();
    }
    options which;
    int at = 1;
    if (std::strcmp(argv[at], "--edges") == 0) {
        which.edges = true;
        ++at;
    } else if (std::strcmp(argv[at], "--blur") == 0) {
        const std::string_view text = at + 1 < argc ? argv[at + 1] : "";
        const auto [end, error] =
            std::from_chars(text.data(), text.data() + text.size(), which.radius);
        if (error != std::errc() || end != text.data() + text.size() ||
            which.radius > most_radius) {
            return usage();
        }
        at += 2;
    }
    if (argc - at != 2 || argv[at][0] == '-') {
        return usage();
    }
    picture in;
    if (const std::string why = read(argv[at], in); !why.empty()) {
        std::fprintf(stderr, "filter: %s: %s\n", argv[at], why.c_str());
        return 1;
    }
    bide::scheduler workers;
    const auto out = apply(workers, in, which);
    if (!out) {
        return 1;
    }
    if (!write(argv[at + 1], *out)) {
        std::fprintf(stderr, "filter: %s: cannot be written\n", argv[at + 1]);
        return 1;
    }
    std::printf("%zu x %zu pixels\n", out->width, out->height);
    return 0;
}
