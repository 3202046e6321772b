// SPDX-License-Identifier: BSD-3-Clause
#include "vfio_bar_import.hpp"

#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <upcie/dmabuf/dma_buf.hpp>

#include "../session.hpp"

namespace upcie::probes {

const char* const vfio_bar_import_question =
    "Will the GPU's runtime import the MMIO of another device, exported by vfio "
    "as a dma-buf?";

namespace {

using gpu::ExternalHandle;

/// What the control imports: a multiple of every granularity that was seen.

/// The first eight bytes by two reads of 32 bits: the only width that every controller takes.
std::uint64_t first_word(const os::Mapping& view) {
    const auto* const words = static_cast<const volatile std::uint32_t*>(static_cast<const void*>(view.data()));
    const std::uint64_t low = words[0];
    return low | (std::uint64_t{words[1]} << 32);
}

class BarImportQuestion {
  public:
    BarImportQuestion(Report& report, const Requests& requests, const BarRange& range, ProbedGpu& gpu)
        : report_{report}, requests_{requests}, range_{range}, gpu_{gpu} {}

    Result<void> ask(const pci::FunctionInfo& function);

  private:
    [[nodiscard]] Result<os::Fd> export_range(const Session& session, const uapi::VfioRegionInfo& region) const;
    void look_at_descriptor(const os::Fd& exported);
    void look_at_cpu(const os::Fd& exported);
    void look_at_import(ExternalHandle kind, const os::Fd& exported);
    void look_at_reading(const std::string& kind, DevicePointer base);
    void guard(const std::string& topic);
    void judge();

    Report& report_;
    const Requests& requests_;
    const BarRange& range_;
    ProbedGpu& gpu_;
    Result<os::Mapping> host_ = tl::unexpected{Error{}}; ///< the range as vfio lets the host map it
    std::optional<int> cpu_error_;                       ///< of mapping the descriptor
    std::optional<bool> cpu_equal_;
    std::string accepted_; ///< kinds that were taken, with commas
    bool own_taken_ = false;
    unsigned read_ = 0;   ///< imports that the device was to read
    unsigned failed_ = 0; ///< of these, reads that failed
    unsigned equal_ = 0;  ///< of these, reads that saw what the host sees
};

Result<os::Fd> BarImportQuestion::export_range(const Session& session, const uapi::VfioRegionInfo& region) const {
    const std::string subject = fmt::format("{} bytes at {} of BAR {}", range_.length, range_.offset, range_.region);
    if (range_.length == 0 || range_.offset % page != 0 || range_.length % page != 0 || range_.offset > region.size ||
        range_.length > region.size - range_.offset) {
        return fail(EINVAL, "export as a dma-buf", subject,
                    region.size == 0
                        ? std::string{"The device has no such BAR: upcie list --verbose shows those it has."}
                        : fmt::format("The BAR has {} bytes; give whole pages of {} inside.", region.size, page));
    }
    Answered<os::Fd> exported =
        requests_.export_dmabuf(session.device.get(), range_.region, {{range_.offset, range_.length}});
    if (!exported.ok()) {
        return fail(exported.error, "VFIO_DEVICE_FEATURE_DMA_BUF", subject,
                    exported.error == ENOTTY
                        ? "It takes Linux 6.19 or newer with CONFIG_VFIO_PCI_DMABUF."
                        : "The kernel exports no dma-buf of this range: another BAR may do, or another device.");
    }
    return std::move(exported.value);
}

void BarImportQuestion::look_at_descriptor(const os::Fd& exported) {
    auto copy = exported.duplicate();
    const auto buffer =
        copy ? dmabuf::DmaBuf::adopt(requests_.system(), std::move(*copy)) : tl::unexpected{copy.error()};
    if (!buffer) {
        report_.not_seen("bar.exporter", buffer.error().message());
        return;
    }
    report_.observe("bar.exporter", buffer->facts().exporter);
    report_.observe("bar.size", buffer->size().value(), "bytes", "of the descriptor");
}

void BarImportQuestion::look_at_cpu(const os::Fd& exported) {
    const auto view = os::Mapping::map(requests_.system(), exported.get(), 0, ByteCount{range_.length}, false);
    cpu_error_ = view ? 0 : view.error().code;
    report_.outcome("cpu.mmap", *cpu_error_, "of the descriptor, to read");
    if (view && host_) {
        const std::uint64_t value = first_word(*view);
        cpu_equal_ = value == first_word(*host_);
        report_.observe("cpu.value", hex(value), "register");
    }
}

/// What the device sees through an import, beside what the host sees.
void BarImportQuestion::look_at_reading(const std::string& kind, DevicePointer base) {
    ++read_;
    const auto value = gpu_.read(base);
    if (!value) {
        ++failed_;
        tell(report_, kind + ".device_read", value.error(), fmt::format("by {}", to_string(gpu_.read_by())));
        return;
    }
    report_.outcome(kind + ".device_read", 0, fmt::format("by {}", to_string(gpu_.read_by())));
    report_.observe(kind + ".device_value", hex(*value), "register");
    equal_ += host_ && *value == first_word(*host_) ? 1U : 0U;
}

void BarImportQuestion::look_at_import(ExternalHandle kind, const os::Fd& exported) {
    const std::string name{gpu::to_string(kind)};
    const std::optional<Error> own = import_own_memory(report_, gpu_, kind);
    own_taken_ = own_taken_ || !own;
    const auto imported = gpu_.import_external(kind, exported.get(), ByteCount{range_.length});
    if (imported) {
        // Taken is taken, whatever becomes of the runtime's own memory.
        report_.outcome(name + ".import", 0);
        accepted_ += (accepted_.empty() ? "" : ", ") + name;
        look_at_reading(name, *imported);
        if (const auto released = gpu_.release_external(*imported); !released) {
            tell(report_, name + ".release", released.error());
        }
        report_.answer(name, "accepted", fmt::format("The runtime takes the BAR's dma-buf as {}.", name));
        return;
    }
    tell(report_, name + ".import", imported.error());
    const auto is_no_kind = [](const Error& error) { return error.is(ENOTSUP) || error.is(ENOSYS); };
    if (own && is_no_kind(*own) && is_no_kind(imported.error())) {
        report_.answer(name, "no_such_kind", fmt::format("The runtime has no import as {}.", name));
        return;
    }
    report_.control(name, "control.own_memory_as_" + name, !own, own ? outcome_word(*own) : "ok",
                    "a runtime that takes no memory of its own in this way says nothing of a BAR by refusing it");
    report_.answer(
        name, "refused",
        fmt::format("The runtime does not take the BAR's dma-buf as {} ({}).", name, outcome_word(imported.error())));
}

/// The controls of a comparison with what the host reads.
void BarImportQuestion::guard(const std::string& topic) {
    const std::string name = "control." + topic + ".";
    report_.control(topic, name + "host_reads_the_region", host_.has_value(),
                    host_ ? "ok" : outcome_word(host_.error()), "through vfio's own mapping of it");
    if (!host_) {
        return;
    }
    const std::uint64_t first = first_word(*host_);
    const std::uint64_t second = first_word(*host_);
    report_.control(topic, name + "the_value_stays", first == second, first == second,
                    "what changes by itself cannot be compared");
    const bool tells = first != 0 && first != ~std::uint64_t{0};
    report_.control(topic, name + "the_value_tells", tells, hex(first),
                    "all zeros and all ones are also what one reads where there is nothing");
}

void BarImportQuestion::judge() {
    const bool taken = !accepted_.empty();
    if (!taken) {
        report_.control("import", "control.own_memory_in_some_way", own_taken_, own_taken_,
                        "a runtime that imports nothing says nothing of a BAR");
    }
    report_.answer("import", taken ? "accepted" : "refused",
                   taken        ? fmt::format("The runtime imports the BAR ({}).", accepted_)
                   : own_taken_ ? "The runtime imports memory of its own, and the BAR in none of its ways."
                                : "The runtime imports the BAR in none of its ways, nor does it memory of its own.");
    const bool mappable = cpu_error_ == 0;
    report_.answer("cpu_mmap", mappable ? "allowed" : "refused",
                   mappable
                       ? "The CPU may map the dma-buf."
                       : fmt::format("The CPU may not map the dma-buf ({}): vfio's own mapping of the region is the "
                                     "CPU's way.",
                                     outcome_word(cpu_error_.value_or(0))));
    if (mappable) {
        guard("cpu_read");
        const bool equal = cpu_equal_.value_or(false);
        report_.answer("cpu_read", equal ? "equal" : "differs",
                       equal ? "Through that mapping the CPU reads what it reads through vfio's."
                             : "Through that mapping the CPU reads something else than through vfio's.");
    }
    if (read_ == 0) {
        report_.answer("device_read", "not_tried", "The GPU read nothing, since no import was taken.");
        return;
    }
    guard("device_read");
    const char* const way = to_string(gpu_.read_by());
    report_.answer("device_read",
                   failed_ == read_  ? "failed"
                   : equal_ == read_ ? "equal"
                                     : "differs",
                   failed_ == read_ ? fmt::format("The GPU cannot read what was imported (by {}).", way)
                   : equal_ == read_
                       ? fmt::format("The GPU reads what the host reads, by {}{}.", way,
                                     gpu_.read_by() == ReadBy::copy ? ", which is weaker than by a kernel" : "")
                       : fmt::format("{} of {} imports read by {} show what the host reads.", equal_, read_, way));
}

Result<void> BarImportQuestion::ask(const pci::FunctionInfo& function) {
    const Result<Session> session = open_session(requests_, function.vfio_cdev);
    if (!session) {
        return tl::unexpected{session.error()};
    }
    const Answered<uapi::VfioRegionInfo> region = requests_.region_info(session->device.get(), range_.region);
    if (!region.ok()) {
        return fail(region.error, "VFIO_DEVICE_GET_REGION_INFO", fmt::format("BAR {}", range_.region),
                    "Name a BAR that the device has.");
    }
    const Result<os::Fd> exported = export_range(*session, region.value);
    if (!exported) {
        return tl::unexpected{exported.error()};
    }
    report_.observe("region.index", range_.region);
    report_.observe("region.size", region.value.size, "bytes");
    report_.observe("range.offset", range_.offset, "bytes");
    report_.observe("range.length", range_.length, "bytes");
    look_at_descriptor(*exported);
    host_ = os::Mapping::map(requests_.system(), session->device.get(),
                             static_cast<off_t>(region.value.offset + range_.offset), ByteCount{range_.length}, false);
    report_.outcome("host.mmap", host_ ? 0 : host_.error().code, "of the region through vfio");
    if (host_) {
        const bool cap = function.is_nvme() && range_.region == 0 && range_.offset == 0;
        report_.observe("host.value", hex(first_word(*host_)), "register",
                        cap ? "the register CAP" : "the first eight bytes of the range");
    }
    look_at_cpu(*exported);
    for (const ExternalHandle kind :
         {ExternalHandle::dma_buf_fd, ExternalHandle::opaque_fd, ExternalHandle::shareable_handle}) {
        look_at_import(kind, *exported);
    }
    judge();
    return {};
}

} // namespace

Result<void> ask_vfio_bar_import(Report& report, const Requests& requests, const pci::FunctionInfo& function,
                                 const BarRange& range, ProbedGpu& gpu) {
    return BarImportQuestion{report, requests, range, gpu}.ask(function);
}

} // namespace upcie::probes
