// SPDX-License-Identifier: BSD-3-Clause
#include <iommu/smaps.hpp>

#include <algorithm>
#include <charconv>

namespace upcie::iommu {

namespace {

bool take_number(std::string_view& text, int base, std::uint64_t& value) {
    const auto [stop, problem] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (problem != std::errc{}) {
        return false;
    }
    text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
    return true;
}

/// "7f00-7f20 rw-s ...": no other line of smaps begins so.
bool parse_header(std::string_view line, std::uint64_t& from, std::uint64_t& to, bool& shared) {
    if (!take_number(line, 16, from) || line.empty() || line[0] != '-') {
        return false;
    }
    line.remove_prefix(1);
    if (!take_number(line, 16, to) || line.size() < 5 || line[0] != ' ') {
        return false;
    }
    shared = line[4] == 's';
    return true;
}

} // namespace

MemoryKind look_up_smaps(std::string_view smaps, std::uint64_t start, std::uint64_t length) {
    constexpr std::string_view page_size = "KernelPageSize:";
    MemoryKind kind;
    kind.shared = true;
    const std::uint64_t last = start + (length - 1);
    std::uint64_t covered = start; // everything below is found; areas come in ascending order
    bool complete = false;
    bool inside = false;
    bool sized = true; // the area before told its page size
    while (!smaps.empty()) {
        const std::size_t end = std::min(smaps.find('\n'), smaps.size());
        std::string_view line = smaps.substr(0, end);
        smaps.remove_prefix(std::min(end + 1, smaps.size()));
        std::uint64_t from = 0;
        std::uint64_t to = 0;
        bool shared = false;
        if (parse_header(line, from, to, shared)) {
            inside = !complete && from <= covered && covered < to;
            if (inside) {
                if (!sized) {
                    return {};
                }
                sized = false;
                kind.shared = kind.shared && shared;
                complete = last < to;
                covered = to;
            }
        } else if (inside && line.substr(0, page_size.size()) == page_size) {
            line.remove_prefix(page_size.size());
            line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
            std::uint64_t kib = 0;
            if (!take_number(line, 10, kib)) {
                return {};
            }
            kind.smallest_page_kib = kind.smallest_page_kib == 0 ? kib : std::min(kind.smallest_page_kib, kib);
            sized = true;
        }
    }
    kind.mapped = complete && sized;
    return kind;
}

} // namespace upcie::iommu
