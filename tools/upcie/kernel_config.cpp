// SPDX-License-Identifier: BSD-3-Clause
#include "kernel_config.hpp"

#include <array>

#include <fcntl.h>
#include <fmt/format.h>
#if UPCIE_HAVE_ZLIB
#include <zlib.h>
#endif

#include <upcie/os/fd.hpp>
#include <upcie/os/sysfs.hpp>

namespace upcie::cli {

namespace {

/// Bytes as they are: read_text() would cut white space off a compressed file's end.
std::string read_bytes(os::System& system, const std::string& path) {
    auto file = os::open_file(system, path.c_str(), O_RDONLY);
    if (!file) {
        return {};
    }
    std::string bytes;
    std::array<char, 16384> chunk{};
    ssize_t got = 0;
    while ((got = system.read(file->get(), chunk.data(), chunk.size())) > 0) {
        bytes.append(chunk.data(), static_cast<std::size_t>(got));
    }
    return got == 0 ? bytes : std::string{};
}

} // namespace

std::string gunzip(const std::string& packed) {
#if UPCIE_HAVE_ZLIB
    z_stream stream{};
    constexpr int gzip_window = 15 + 16; // zlib.h: 16 more asks for the gzip header
    if (inflateInit2(&stream, gzip_window) != Z_OK) {
        return {};
    }
    std::string source = packed; // zlib's pointer is not to const
    stream.next_in = reinterpret_cast<Bytef*>(source.data());
    stream.avail_in = static_cast<uInt>(source.size());
    std::string text;
    std::array<char, 65536> chunk{};
    int state = Z_OK;
    while (state == Z_OK) {
        stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
        stream.avail_out = static_cast<uInt>(chunk.size());
        state = inflate(&stream, Z_NO_FLUSH);
        text.append(chunk.data(), chunk.size() - stream.avail_out);
    }
    inflateEnd(&stream);
    return state == Z_STREAM_END ? text : std::string{};
#else
    static_cast<void>(packed);
    return {};
#endif
}

KernelConfig KernelConfig::read(os::System& system, const HostRoots& roots, const std::string& release) {
    for (const auto& path :
         {fmt::format("{}/config-{}", roots.boot, release), fmt::format("{}/{}/config", roots.modules, release),
          fmt::format("{}/{}/build/.config", roots.modules, release)}) {
        if (auto text = os::read_text(system, path); text && !text->empty()) {
            return {path, std::move(*text)};
        }
    }
    const std::string packed = roots.kernel.proc + "/config.gz";
    if (auto text = gunzip(read_bytes(system, packed)); !text.empty()) {
        return {packed, std::move(text)};
    }
    return {};
}

std::optional<char> KernelConfig::option(std::string_view name) const {
    if (!known()) {
        return std::nullopt;
    }
    const std::string wanted = fmt::format("{}=", name);
    std::size_t start = 0;
    while (start < text_.size()) {
        if (text_.compare(start, wanted.size(), wanted) == 0 && start + wanted.size() < text_.size()) {
            return text_[start + wanted.size()];
        }
        const auto end = text_.find('\n', start);
        start = end == std::string::npos ? text_.size() : end + 1;
    }
    return 'n';
}

} // namespace upcie::cli
