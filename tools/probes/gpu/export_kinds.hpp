// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <initializer_list>
#include <string>

#include <fmt/format.h>

#include "probed_gpu.hpp"

namespace upcie::probes {

/// What a descriptor says of itself, and what it lets the CPU do.
void ask_descriptor(Report& report, os::System& system, gpu::Export exported);

/// What a vendor's runtime alone can be asked: kinds of memory that export or do not, from where in an allocation, with
/// the flag for a mapping through PCIe. The first kind is the runtime's ordinary one, whose descriptor is looked at.
/// Observations alone; the verdict is ask_dmabuf_export's.
template <class Flavour, class Kind, class Mapping>
void ask_export_kinds(Report& report, os::System& system, Flavour& flavour, std::initializer_list<Kind> kinds,
                      Mapping pcie) {
    constexpr ByteCount size{4 << 20};
    constexpr ByteCount half{2 << 20};
    for (const Kind kind : kinds) {
        const bool ordinary = kind == *kinds.begin();
        const std::string name = fmt::format("kind.{}", to_string(kind));
        const auto base = flavour.allocate(kind, size);
        if (!base) {
            tell(report, name + ".allocate", base.error());
            continue;
        }
        if (const auto found = flavour.allocation_of(*base + ByteCount{100})) {
            report.observe(name + ".recovered_from_100_bytes_in", found->base == *base, {},
                           fmt::format("{} bytes", found->size.value()));
        } else {
            tell(report, name + ".recovered_from_100_bytes_in", found.error());
        }
        auto exported = flavour.export_range(*base, size);
        if (!exported) {
            tell(report, name + ".export", exported.error());
        } else {
            report.outcome(name + ".export", 0);
            report.observe(name + ".size", exported->size.value(), "bytes");
            if (ordinary) {
                ask_descriptor(report, system, std::move(*exported));
            }
        }
        if (const auto part = flavour.export_range(*base + half, half)) {
            report.outcome(name + ".export_of_2m_at_2m", 0);
        } else {
            tell(report, name + ".export_of_2m_at_2m", part.error());
        }
        if (ordinary) {
            if (const auto mapped = flavour.export_range(*base, size, pcie)) {
                report.outcome(name + ".export_with_the_pcie_flag", 0);
            } else {
                tell(report, name + ".export_with_the_pcie_flag", mapped.error());
            }
        }
        if (const auto freed = flavour.free(kind, *base); !freed) {
            tell(report, name + ".free", freed.error());
        }
    }
}

} // namespace upcie::probes
