// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/rm/scrub.hpp>

#include <algorithm>
#include <array>
#include <string_view>

#include <rm/address_scrub.hpp>
#include <rm/identifier_scrub.hpp>
#include <rm/trace_bytes.hpp>
#include <upcie/rm/call.hpp>
#include <upcie/rm/controls.hpp>

namespace upcie::rm {

namespace {

// Replies whose point is what one card is: board info and its serial number, OEM data, ROM image, certificates and
// attestation, keys. Nothing else in them is worth keeping.
constexpr std::array<std::uint32_t, 8> serial_controls{
    0x2080013f, // GPU_GET_OEM_BOARD_INFO
    0x20800169, // GPU_GET_OEM_INFO
    0xcb330109, // CONF_COMPUTE GET_GPU_CERTIFICATE
    0xcb33010a, // CONF_COMPUTE GET_GPU_ATTESTATION_REPORT
    0x20800803, // BIOS_GET_NBSI
    0x20800806, // BIOS_GET_NBSI_OBJ
    0x20802402, // NVD_GET_DUMP
    0x602,      // NVD_GET_DUMP of the root
};

bool is_opaque(std::uint32_t command) {
    return is_legacy_control(command) || find_control(command) == nullptr;
}

/// The byte strings that came back from a control: its parameters and what lies below them.
void clear_reply(IoctlRecord& ioctl) {
    for (Block& block : ioctl.blocks) {
        const bool below = block.path.find("params") != std::string::npos;
        if (below && block.after.bytes.empty() && block.after.error == 0) {
            // Unchanged: what went in is what came back, and would stay readable there.
            std::ranges::fill(block.before.bytes, std::byte{0});
        } else if (below) {
            std::ranges::fill(block.after.bytes, std::byte{0});
        }
    }
}

bool is_name_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
}

/// Replaces [begin, end) by letters of `filler`, of the same length, so that sizes of file contents stay right.
std::uint64_t fill(std::string& text, std::size_t begin, std::size_t end, std::string_view filler) {
    std::uint64_t changed = 0;
    for (std::size_t i = begin; i < end; ++i) {
        const char letter = i - begin < filler.size() ? filler[i - begin] : 'x';
        changed = text[i] != letter ? 1U : changed;
        text[i] = letter;
    }
    return changed;
}

std::uint64_t scrub_home(std::string& text) {
    std::uint64_t changed = 0;
    for (const std::string_view prefix : {std::string_view{"/home/"}, std::string_view{"/Users/"}}) {
        for (std::size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at + 1)) {
            const std::size_t begin = at + prefix.size();
            const std::size_t end = std::min(text.find_first_of("/ \n\"", begin), text.size());
            changed += fill(text, begin, end, "user");
        }
    }
    return changed;
}

/// user@host, as in the line of /proc/version that says who built the kernel.
std::uint64_t scrub_at(std::string& text) {
    std::uint64_t changed = 0;
    for (std::size_t at = text.find('@'); at != std::string::npos; at = text.find('@', at + 1)) {
        std::size_t begin = at;
        while (begin > 0 && is_name_letter(text[begin - 1])) {
            --begin;
        }
        std::size_t end = at + 1;
        while (end < text.size() && is_name_letter(text[end])) {
            ++end;
        }
        if (begin < at && end > at + 1) {
            changed += fill(text, begin, at, "user") + fill(text, at + 1, end, "host");
        }
    }
    return changed;
}

class Texts {
  public:
    explicit Texts(const ScrubOptions& options) : also_{options.also} {}

    /// `prose` is text from end to end: in the numbers of a payload an '@' says nothing.
    std::uint64_t scrub(std::string& text, bool prose) const {
        std::uint64_t changed = scrub_home(text) + (prose ? scrub_at(text) : 0);
        for (const std::string& other : also_) {
            for (std::size_t at = other.empty() ? std::string::npos : text.find(other); at != std::string::npos;
                 at = text.find(other, at + other.size())) {
                changed += fill(text, at, at + other.size(), "removed");
            }
        }
        return changed;
    }

    std::uint64_t scrub(std::vector<std::byte>& bytes, bool prose) const {
        std::string text(bytes.size(), '\0');
        std::ranges::transform(bytes, text.begin(), [](std::byte b) { return std::to_integer<char>(b); });
        const std::uint64_t changed = scrub(text, prose);
        std::ranges::transform(text, bytes.begin(), [](char c) { return static_cast<std::byte>(c); });
        return changed;
    }

  private:
    const std::vector<std::string>& also_;
};

void clear_replies(Trace& trace, DriverVersion version, const ScrubOptions& options, ScrubReport& report) {
    for (Record& record : trace.records) {
        const auto call = understand(record, version);
        if (!call || !call->control) {
            continue;
        }
        auto& ioctl = std::get<IoctlRecord>(record.body);
        if (std::ranges::find(serial_controls, *call->control) != serial_controls.end()) {
            clear_reply(ioctl);
            ++report.serials;
        } else if (is_opaque(*call->control) && !options.keep_opaque) {
            clear_reply(ioctl);
            ++report.opaque;
        }
    }
}

void see_all(Trace& trace, DriverVersion version, AddressScrub& addresses, IdentifierScrub& identifiers) {
    for (Record& record : trace.records) {
        for_each_address(record, [&](std::uint64_t& address) { addresses.see(address); });
        for_each_bytes(record, [&](std::vector<std::byte>& bytes, TraceBytes kind) {
            addresses.see(bytes, kind);
            identifiers.see_text(bytes);
        });
        if (const auto call = understand(record, version)) {
            identifiers.see(*call);
        }
    }
    addresses.settle();
}

} // namespace

ScrubReport scrub(Trace& trace, const ScrubOptions& options) {
    ScrubReport report;
    const DriverVersion version = driver_version(trace);
    clear_replies(trace, version, options, report);

    AddressScrub addresses;
    IdentifierScrub identifiers;
    see_all(trace, version, addresses, identifiers);
    report.identifiers = identifiers.size();

    const Texts texts{options};
    const auto scrub_text = [&](std::string& text) {
        identifiers.replace(text);
        report.texts += texts.scrub(text, true);
    };
    for (TraceHeader& header : trace.headers) {
        for_each_text(header, scrub_text);
    }
    for (Record& record : trace.records) {
        for_each_address(record, [&](std::uint64_t& address) {
            const std::uint64_t other = addresses.replacement(address);
            report.pointers += other != address ? 1U : 0U;
            address = other;
        });
        for_each_bytes(record, [&](std::vector<std::byte>& bytes, TraceBytes kind) {
            report.pointers += addresses.replace(bytes, kind);
            identifiers.replace(bytes);
            if (kind != TraceBytes::memory) {
                report.texts += texts.scrub(bytes, kind == TraceBytes::file);
            }
        });
        for_each_text(record, scrub_text);
    }
    return report;
}

} // namespace upcie::rm
