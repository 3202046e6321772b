// SPDX-License-Identifier: BSD-3-Clause
#include "load.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>

#include <fmt/format.h>
#include <lzma.h>

#include "printable.hpp"
#include "trace_reader.hpp"

namespace upcie::rm {

namespace {

/// An lzma stream that is given back on every way out.
class Stream {
  public:
    Stream() = default;
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream() { lzma_end(&stream_); }
    lzma_stream* operator->() noexcept { return &stream_; }
    lzma_stream* get() noexcept { return &stream_; }

  private:
    lzma_stream stream_ = LZMA_STREAM_INIT;
};

tl::unexpected<Error> lzma_failure(lzma_ret code, const char* operation, const std::string& subject) {
    if (code == LZMA_MEM_ERROR || code == LZMA_MEMLIMIT_ERROR) {
        return fail(ENOMEM, operation, subject, "the file needs more memory than there is");
    }
    if (code == LZMA_BUF_ERROR) {
        return fail(EBADMSG, operation, subject, "the file ends before its end: copy it again");
    }
    return fail(EBADMSG, operation, subject, "the file is no whole xz file: `xz -t` says the same; copy it again");
}

/// Runs a stream over all of the input.
Result<std::string> run(Stream& stream, std::string_view input, const char* operation, const std::string& subject) {
    std::string output;
    std::array<char, 65536> piece{};
    stream->next_in = reinterpret_cast<const std::uint8_t*>(input.data());
    stream->avail_in = input.size();
    for (;;) {
        stream->next_out = reinterpret_cast<std::uint8_t*>(piece.data());
        stream->avail_out = piece.size();
        const lzma_ret code = lzma_code(stream.get(), LZMA_FINISH);
        output.append(piece.data(), piece.size() - stream->avail_out);
        if (output.size() > most_trace_bytes) {
            return fail(EFBIG, operation, subject, fmt::format("it unpacks to more than {} bytes", most_trace_bytes));
        }
        if (code == LZMA_STREAM_END) {
            return output;
        }
        if (code != LZMA_OK) {
            return lzma_failure(code, operation, subject);
        }
    }
}

/// All of a stream, by its own reads: an iterator over its buffer throws where a read fails.
Result<std::string> read_stream(std::istream& stream, const std::string& path) {
    std::string text;
    std::array<char, 65536> piece{};
    errno = 0;
    while (stream.read(piece.data(), piece.size()) || stream.gcount() > 0) {
        text.append(piece.data(), static_cast<std::size_t>(stream.gcount()));
    }
    // Standard input lies over C's stream, which keeps an error to itself.
    if (stream.bad() || (&stream == &std::cin && std::ferror(stdin) != 0)) {
        const int error = errno != 0 ? errno : EIO;
        return fail(error, "read", path,
                    error == EISDIR ? "it is a folder: give the path of a file in it"
                                    : "the file could not be read to its end: copy it to another place, and read that");
    }
    return text;
}

} // namespace

bool LoadedTrace::damaged() const {
    return std::ranges::any_of(trace.problems,
                               [this](const TraceProblem& problem) { return problem.line < lines || !cut_off; });
}

Result<std::string> unpack_xz(std::string_view packed, const std::string& subject) {
    constexpr const char* operation = "unpack xz";
    constexpr std::uint64_t most_memory = std::uint64_t{1} << 30;
    Stream stream;
    const lzma_ret begun = lzma_stream_decoder(stream.get(), most_memory, LZMA_CONCATENATED);
    return begun != LZMA_OK ? lzma_failure(begun, operation, subject) : run(stream, packed, operation, subject);
}

Result<std::string> pack_xz(std::string_view text, const std::string& subject) {
    constexpr const char* operation = "pack xz";
    constexpr std::uint32_t preset = 9;
    Stream stream;
    const lzma_ret begun = lzma_easy_encoder(stream.get(), preset, LZMA_CHECK_CRC64);
    return begun != LZMA_OK ? lzma_failure(begun, operation, subject) : run(stream, text, operation, subject);
}

Result<std::string> read_all(const std::string& path) {
    if (path == "-") {
        return read_stream(std::cin, "standard input");
    }
    errno = 0;
    std::ifstream file{path, std::ios::binary};
    if (!file) {
        return fail(errno != 0 ? errno : EIO, "read", path, "give the path of a file that can be read");
    }
    return read_stream(file, path);
}

Result<LoadedTrace> load_trace_text(std::string_view text, const std::string& subject) {
    LoadedTrace loaded;
    loaded.trace = parse_trace(text);
    loaded.lines = static_cast<std::uint64_t>(std::ranges::count(text, '\n'));
    loaded.cut_off = !text.empty() && text.back() != '\n';
    loaded.lines += loaded.cut_off ? 1U : 0U;
    if (loaded.trace.headers.empty()) {
        const auto& problems = loaded.trace.problems;
        const std::string why =
            problems.empty() ? std::string{"it has no header"}
                             : fmt::format("line {}: {}", problems.front().line, printable(problems.front().text));
        return fail(EINVAL, "read a trace", subject,
                    why + "; upcie_rm reads what upcie_rm_trace writes (docs/rm-trace.md)");
    }
    return loaded;
}

Result<LoadedTrace> load_trace(const std::string& path) {
    auto text = read_all(path);
    if (!text) {
        return tl::unexpected{text.error()};
    }
    constexpr std::string_view magic{"\xfd"
                                     "7zXZ\0",
                                     6};
    if (text->starts_with(magic)) {
        text = unpack_xz(*text, path);
        if (!text) {
            return tl::unexpected{text.error()};
        }
    }
    return load_trace_text(*text, path);
}

void report_problems(const LoadedTrace& loaded, const std::string& path, std::ostream& errors) {
    constexpr std::size_t most = 20;
    const auto& problems = loaded.trace.problems;
    for (std::size_t i = 0; i < std::min(problems.size(), most); ++i) {
        errors << fmt::format("upcie_rm: {}: line {}: {}\n", path, problems[i].line, printable(problems[i].text));
    }
    if (problems.size() > most) {
        errors << fmt::format("upcie_rm: {}: and {} more problems\n", path, problems.size() - most);
    }
}

Result<void> write_all(const std::string& path, const std::string& text, std::ostream& out) {
    if (path == "-") {
        out << text << std::flush;
        return {};
    }
    std::string packed;
    if (path.ends_with(".xz")) {
        auto result = pack_xz(text, path);
        if (!result) {
            return tl::unexpected{result.error()};
        }
        packed = std::move(*result);
    }
    errno = 0;
    std::ofstream file{path, std::ios::binary | std::ios::trunc};
    file << (packed.empty() ? text : packed);
    file.close();
    if (!file) {
        return fail(errno != 0 ? errno : EIO, "write", path,
                    "make sure that the folder exists, is yours, and has room");
    }
    return {};
}

} // namespace upcie::rm
