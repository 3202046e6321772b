// SPDX-License-Identifier: BSD-3-Clause
#include "dmabuf.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace upcie::probes {

const char* const dmabuf_export_question = "Does an export of a range of device memory as a dma-buf describe that "
                                           "range, and how are odd and small allocations "
                                           "reported, recovered and exported?";

namespace {

using namespace upcie::literals;

constexpr ByteCount host_page = 4_KiB;

/// Frees at the end.
class Owned {
  public:
    Owned(gpu::Runtime& runtime, DevicePointer base, ByteCount size) : runtime_{&runtime}, base_{base}, size_{size} {}
    Owned(Owned&& other) noexcept
        : runtime_{std::exchange(other.runtime_, nullptr)}, base_{other.base_}, size_{other.size_} {}
    Owned& operator=(Owned&&) = delete;
    ~Owned() {
        if (runtime_ != nullptr) {
            static_cast<void>(runtime_->free(base_));
        }
    }
    [[nodiscard]] DevicePointer base() const { return base_; }
    [[nodiscard]] ByteCount size() const { return size_; }

  private:
    gpu::Runtime* runtime_;
    DevicePointer base_;
    ByteCount size_;
};

/// What one export came to.
struct Seen {
    ByteCount offset;
    ByteCount asked;
    std::optional<gpu::Export> exported;
    std::optional<dmabuf::ScatterList> list;

    [[nodiscard]] ByteCount described() const { return list ? list->total() : exported ? exported->size : ByteCount{}; }
    [[nodiscard]] DmaAddress first() const { return list->runs().front().extent.address; }
};

class Asking {
  public:
    Asking(Report& report, gpu::Runtime& runtime, const Describe& describe)
        : report_{report}, runtime_{runtime}, describe_{describe} {}

    Result<void> ask();

  private:
    [[nodiscard]] Result<Owned> allocate(ByteCount size);
    Seen look(const std::string& name, const Owned& memory, ByteCount offset, ByteCount asked);
    void refusal(const std::string& name, DevicePointer start, ByteCount length, const char* note);
    void tell(const std::string& name, const Error& error) { probes::tell(report_, name, error); }
    void look_at_recovery(const std::string& name, const Owned& memory);
    void look_at_odd();
    void look_at_small();
    void look_at_refusals(const Owned& first, const Owned& second);
    void judge_ranges(const std::vector<Seen>& seen, const Seen& whole);
    void judge();

    Report& report_;
    gpu::Runtime& runtime_;
    const Describe& describe_;
    bool honoured_ = true; ///< every export describes what was asked, from where it was asked
    bool ignored_ = true;  ///< every export describes the whole, from its base
    bool recovered_ = true;
    unsigned inside_pages_ = 0; ///< small allocations that do not start at a page
    unsigned small_ = 0;
    unsigned refused_at_base_ = 0; ///< their export from the base itself is refused
    unsigned rounded_ = 0;         ///< and of the pages around them is not
};

Result<Owned> Asking::allocate(ByteCount size) {
    const auto base = runtime_.allocate(size);
    if (!base) {
        return tl::unexpected{base.error()};
    }
    return Owned{runtime_, *base, size};
}

Seen Asking::look(const std::string& name, const Owned& memory, ByteCount offset, ByteCount asked) {
    Seen seen{offset, asked, {}, {}};
    auto exported = runtime_.export_range(memory.base() + offset, asked);
    if (!exported) {
        tell(name + ".export", exported.error());
        return seen;
    }
    report_.outcome(name + ".export", 0);
    report_.observe(name + ".offset", offset.value(), "bytes");
    report_.observe(name + ".asked", asked.value(), "bytes");
    seen.exported = std::move(*exported);
    report_.observe(name + ".size", seen.exported->size.value(), "bytes", "of the descriptor");
    if (!describe_) {
        return seen;
    }
    auto list = describe_(*seen.exported);
    if (!list) {
        tell(name + ".scatter_list", list.error());
        return seen;
    }
    seen.list = std::move(*list);
    report_.observe(name + ".described", seen.list->total().value(), "bytes");
    report_.observe(name + ".segments", seen.list->segment_count(), "segments");
    report_.observe(name + ".runs", seen.list->runs().size(), "runs", "segments that abut taken as one");
    report_.observe(name + ".first_address", hex(seen.first().value()), "address");
    report_.observe(name + ".shortest_segment", seen.list->shortest_segment().value(), "bytes");
    report_.observe(name + ".granule", seen.list->granule().value(), "bytes");
    report_.observe(name + ".kind", std::string{dmabuf::to_string(seen.list->kind())});
    return seen;
}

void Asking::refusal(const std::string& name, DevicePointer start, ByteCount length, const char* note) {
    const auto exported = runtime_.export_range(start, length);
    if (exported) {
        report_.outcome("edge." + name, 0, note);
        report_.observe("edge." + name + ".size", exported->size.value(), "bytes");
    } else {
        tell("edge." + name, exported.error());
    }
}

void Asking::judge_ranges(const std::vector<Seen>& seen, const Seen& whole) {
    for (const Seen& one : seen) {
        if (!one.exported || !whole.exported) {
            honoured_ = ignored_ = false;
            continue;
        }
        honoured_ = honoured_ && one.described() == one.asked;
        ignored_ = ignored_ && one.described() == whole.described();
        if (one.list && whole.list) {
            honoured_ = honoured_ && one.first() == whole.list->first(one.offset, 1_B).address;
            ignored_ = ignored_ && one.first() == whole.first();
        }
    }
}

void Asking::look_at_recovery(const std::string& name, const Owned& memory) {
    struct Place {
        const char* name;
        ByteCount inside;
    };
    for (const Place& place : {Place{"base", 0_B}, Place{"inside", ByteCount{memory.size().value() / 3}},
                               Place{"last_byte", memory.size() - 1_B}}) {
        const auto found = runtime_.allocation_of(memory.base() + place.inside);
        const std::string what = name + ".recovered_from_" + place.name;
        if (!found) {
            tell(what, found.error());
            recovered_ = false;
            continue;
        }
        const bool exact = found->base == memory.base() && found->size == memory.size();
        recovered_ = recovered_ && exact;
        report_.observe(what, exact, {},
                        exact ? "" : fmt::format("{} bytes at {:#x}", found->size.value(), found->base.value()));
    }
}

void Asking::look_at_odd() {
    auto odd = allocate(3_MiB + 4_KiB);
    if (!odd) {
        tell("odd.allocate", odd.error());
        return;
    }
    if (const auto found = runtime_.allocation_of(odd->base())) {
        report_.observe("odd.reported", found->size.value(), "bytes");
    }
    look_at_recovery("odd", *odd);
    static_cast<void>(look("odd.as_reported", *odd, 0_B, 3_MiB + 4_KiB));
    static_cast<void>(look("odd.rounded_up", *odd, 0_B, 4_MiB));
}

void Asking::look_at_small() {
    std::vector<Owned> memory;
    for (const ByteCount size : {512_B, 512_B, 3000_B, 4_KiB, 64_KiB, 64_KiB, 256_KiB}) {
        auto one = allocate(size);
        if (!one) {
            tell(fmt::format("small.{}.allocate", size.value()), one.error());
            continue;
        }
        const std::string name = fmt::format("small{}", small_);
        const std::uint64_t base = one->base().value();
        const std::uint64_t inside = base % host_page.value();
        const std::uint64_t end = (base + size.value() + host_page.value() - 1) / host_page.value() * host_page.value();
        ++small_;
        inside_pages_ += inside != 0 ? 1U : 0U;
        report_.observe(name + ".size", size.value(), "bytes");
        report_.observe(name + ".offset_in_page", inside, "bytes");
        look_at_recovery(name, *one);
        const ByteCount whole_pages{(size.value() + host_page.value() - 1) / host_page.value() * host_page.value()};
        const auto at_base = runtime_.export_range(one->base(), whole_pages);
        if (at_base) {
            report_.outcome(name + ".export_from_base", 0);
        } else {
            tell(name + ".export_from_base", at_base.error());
            ++refused_at_base_;
        }
        const auto around = runtime_.export_range(DevicePointer{base - inside}, ByteCount{end - (base - inside)});
        rounded_ += around ? 1U : 0U;
        if (around) {
            report_.outcome(name + ".export_of_the_pages_around", 0);
            report_.observe(name + ".export_of_the_pages_around.size", around->size.value(), "bytes");
        } else {
            tell(name + ".export_of_the_pages_around", around.error());
        }
        memory.push_back(std::move(*one));
    }
}

void Asking::look_at_refusals(const Owned& first, const Owned& second) {
    refusal("unaligned_start", first.base() + 512_B, host_page, "base + 512");
    refusal("unaligned_length", first.base(), 5000_B, "5000 bytes");
    refusal("no_bytes", first.base(), 0_B, "");
    refusal("past_the_end", first.base() + (first.size() - host_page), 1_GiB, "from the last page");
    const Owned& low = first.base() < second.base() ? first : second;
    const Owned& high = first.base() < second.base() ? second : first;
    refusal("two_allocations", low.base(), (high.base() - low.base()) + host_page, "from one into the other");
}

void Asking::judge() {
    const bool ranges = honoured_ || ignored_;
    report_.answer("range",
                   honoured_  ? "honoured"
                   : ignored_ ? "ignored"
                              : "other",
                   honoured_ ? "An export describes just the range that was asked"
                   : ignored_
                       ? "The range is accepted and ignored: every export describes the whole buffer from its base"
                       : "Exports are neither of the range asked nor of the whole buffer: trust none of them");
    const bool shared = inside_pages_ != 0;
    report_.answer("small", shared ? "share_pages" : "own_pages",
                   shared
                       ? fmt::format("{} of {} small allocations start inside a page; {} exports from the base itself "
                                     "are refused, {} of the whole pages around are not",
                                     inside_pages_, small_, refused_at_base_, rounded_)
                       : fmt::format("All {} small allocations start at a page", small_));
    report_.answer("recovery", recovered_ ? "exact" : "other",
                   recovered_ ? "The allocation is found from its base, from inside and from its last byte"
                              : "Not every pointer leads to its allocation as it was asked for");
    const char* const manner = !ranges ? "other" : ignored_ ? "whole-object" : shared ? "suballocated" : "exact";
    report_.answer("manner", manner,
                   !ranges    ? "Something else than what was measured before: look at the observations"
                   : ignored_ ? "Export allocations only, and find a pointer by its offset from the allocation's base"
                   : shared   ? "Export the whole pages around an allocation; what else is in them must not resolve"
                              : "Ranges can be exported as they are, of whole pages");
}

Result<void> Asking::ask() {
    std::vector<Owned> memory;
    std::vector<Seen> wholes;
    for (const char* name : {"a", "b"}) {
        auto one = allocate(64_MiB);
        if (!one) {
            return tl::unexpected{one.error()};
        }
        look_at_recovery(name, *one);
        std::vector<Seen> seen;
        const auto export_as = [&](const char* what, ByteCount offset, ByteCount asked) {
            return look(fmt::format("{}.{}", name, what), *one, offset, asked);
        };
        Seen whole = export_as("whole", 0_B, 64_MiB);
        seen.push_back(export_as("4k_at_base", 0_B, 4_KiB));
        seen.push_back(export_as("2m_at_base", 0_B, 2_MiB));
        seen.push_back(export_as("4k_at_4k", 4_KiB, 4_KiB));
        seen.push_back(export_as("2m_at_2m", 2_MiB, 2_MiB));
        seen.push_back(export_as("3m_at_base", 0_B, 3_MiB));
        report_.control("", std::string{name} + ".whole_is_exported", whole.exported.has_value(),
                        whole.described().value(), "nothing can be said of parts without it");
        if (whole.list) {
            report_.control("", std::string{name} + ".whole_is_described", whole.described() >= 64_MiB,
                            whole.described().value(), "a list of less than the allocation is no answer");
        } else if (whole.exported) {
            report_.control("", std::string{name} + ".descriptor_is_of_the_whole", whole.described() >= 64_MiB,
                            whole.described().value(), "by its size: no importer described it");
        }
        judge_ranges(seen, whole);
        wholes.push_back(std::move(whole));
        memory.push_back(std::move(*one));
    }
    if (wholes[0].list && wholes[1].list) {
        // Where they shared an address, an equal first address would mean nothing.
        const auto overlap = [](const auto& a, const auto& b) {
            return a.extent.address < b.extent.address + b.extent.length &&
                   b.extent.address < a.extent.address + a.extent.length;
        };
        bool apart = true;
        for (const auto& one : wholes[0].list->runs()) {
            for (const auto& other : wholes[1].list->runs()) {
                apart = apart && !overlap(one, other);
            }
        }
        report_.control("range", "allocations_lie_apart", apart, apart,
                        "the lists of two allocations share no address");
        const Seen again = look("a.whole_again", memory[0], 0_B, 64_MiB);
        const bool same = again.list && std::ranges::equal(again.list->runs(), wholes[0].list->runs());
        report_.control("range", "an_export_made_twice_is_the_same", same, same, "or the buffer moves under us");
    }
    const auto outside = runtime_.allocation_of(DevicePointer{0});
    report_.control("recovery", "a_pointer_to_nothing_is_refused", !outside.has_value(), !outside.has_value(),
                    "or every pointer is recognised");
    report_.observe("reported_granularity", runtime_.reported_granularity().value(), "bytes",
                    "describes neither exports nor layout");
    look_at_odd();
    look_at_small();
    look_at_refusals(memory[0], memory[1]);
    judge();
    return {};
}

} // namespace

Result<void> ask_dmabuf_export(Report& report, gpu::Runtime& runtime, const Describe& describe) {
    return Asking{report, runtime, describe}.ask();
}

} // namespace upcie::probes
