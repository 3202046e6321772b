// SPDX-License-Identifier: BSD-3-Clause
#include "report_facts.hpp"

#include <algorithm>
#include <array>

namespace upcie::cli {

namespace {

using Kind = FactSource::Kind;
using Who = FactSource::Who;

constexpr FactSource sub_range[] = {
    {"dmabuf", Kind::answer, "range"},
    {"dmabuf", Kind::seen, "a.4k_at_4k.asked", "asked at 4 KiB:"},
    {"dmabuf", Kind::seen, "a.4k_at_4k.described", "described:"},
    {"dmabuf", Kind::seen, "a.4k_at_4k.size", "size of the descriptor:", true},
};
constexpr FactSource scatter_list[] = {
    {"dmabuf", Kind::seen, "a.whole.runs", "64 MiB:"},
    {"dmabuf", Kind::seen, "b.whole.runs", "another 64 MiB:"},
    {"dmabuf", Kind::seen, "a.whole.shortest_segment", "shortest segment:"},
    {"dmabuf", Kind::seen, "a.whole.granule", "granule:"},
    {"dmabuf", Kind::seen, "a.whole.shortest_run", "shortest run:"},
    {"dmabuf", Kind::seen, "scatter_list", "", true},
};
constexpr FactSource odd[] = {
    {"dmabuf", Kind::seen, "odd.reported", "reported:"},
    {"dmabuf", Kind::seen, "odd.as_reported.described", "exported:"},
    {"dmabuf", Kind::seen, "odd.as_reported.size", "exported, by its descriptor:", true},
    {"dmabuf", Kind::seen, "odd.as_reported.shortest_segment", "shortest segment:"},
    {"dmabuf", Kind::seen, "odd.rounded_up.export", "export of 4 MiB:"},
    {"dmabuf", Kind::seen, "odd.rounded_up.size", "of its descriptor:"},
};
constexpr FactSource recovery[] = {
    {"dmabuf", Kind::answer, "recovery"},
    {"dmabuf", Kind::seen, "a.recovered_from_inside", "base and size from inside:"},
};
constexpr FactSource granularity[] = {{"dmabuf", Kind::seen, "reported_granularity"}};
constexpr FactSource import_as_dma_buf[] = {{"dmabuf", Kind::seen, "own.dma_buf_fd.import"}};
constexpr FactSource import_as_opaque[] = {{"dmabuf", Kind::seen, "own.opaque_fd.import"}};
constexpr FactSource register_as_root[] = {
    {"vfio_share_gpu", Kind::seen, "bar.registration", "", false, Who::root},
    {"vfio_share_gpu", Kind::seen, "bar", "", true, Who::root},
    {"vfio_share_gpu", Kind::answer, "device_read", "the GPU's read against the host's:", false, Who::root},
};
constexpr FactSource register_as_user[] = {
    {"vfio_share_gpu", Kind::seen, "bar.registration", "", false, Who::user},
    {"vfio_share_gpu", Kind::seen, "bar", "", true, Who::user},
};
constexpr FactSource map_file[] = {
    {"vram_ioas", Kind::seen, "gpu.whole.map_file"},
    {"vram_ioas", Kind::seen, "control.map_file_of_a_memfd", "control, a memfd:"},
};
constexpr FactSource manner[] = {{"dmabuf", Kind::answer, "manner"}};
constexpr FactSource attributes[] = {
    {"dmabuf", Kind::device, "dma_buf_supported", "DMA_BUF_SUPPORTED:"},
    {"dmabuf", Kind::device, "gpu_direct_rdma_with_vmm_supported", "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:"},
};
constexpr FactSource pcie_flag[] = {{"dmabuf", Kind::seen, "kind.device.export_with_the_pcie_flag"}};
constexpr FactSource small[] = {{"dmabuf", Kind::answer, "small"}, {"dmabuf", Kind::sentence, "small"}};
constexpr FactSource unaligned_start[] = {{"dmabuf", Kind::seen, "edge.unaligned_start"}};
constexpr FactSource unaligned_length[] = {{"dmabuf", Kind::seen, "edge.unaligned_length"}};
constexpr FactSource no_bytes[] = {{"dmabuf", Kind::seen, "edge.no_bytes"}};
constexpr FactSource past_the_end[] = {{"dmabuf", Kind::seen, "edge.past_the_end"}};
constexpr FactSource two_allocations[] = {{"dmabuf", Kind::seen, "edge.two_allocations"}};
constexpr FactSource exporter[] = {{"dmabuf", Kind::seen, "descriptor.exporter"}};
constexpr FactSource descriptor_size[] = {{"dmabuf", Kind::seen, "descriptor.size"}};
constexpr FactSource descriptor_mmap[] = {{"dmabuf", Kind::seen, "descriptor.mmap"}};
constexpr FactSource descriptor_sync[] = {
    {"dmabuf", Kind::seen, "descriptor.begin_cpu_access", "begin:"},
    {"dmabuf", Kind::seen, "descriptor.end_cpu_access", "end:"},
};
constexpr FactSource vmm[] = {
    {"dmabuf", Kind::seen, "kind.vmm.export", "whole:"},
    {"dmabuf", Kind::seen, "kind.vmm.export_of_2m_at_2m", "2 MiB at 2 MiB:"},
};
constexpr FactSource pool[] = {
    {"dmabuf", Kind::seen, "kind.pool.export", "whole:"},
    {"dmabuf", Kind::seen, "kind.pool.export_of_2m_at_2m", "2 MiB at 2 MiB:"},
};
constexpr FactSource pool_recovery[] = {{"dmabuf", Kind::seen, "kind.pool.recovered_from_100_bytes_in"}};
constexpr FactSource managed[] = {{"dmabuf", Kind::seen, "kind.managed.export"}};
constexpr FactSource host_memory[] = {{"dmabuf", Kind::seen, "kind.host.export"}};
constexpr FactSource memory_as_user[] = {{"dmabuf", Kind::seen, "a.whole.export", "", false, Who::user}};
constexpr FactSource register_memfd[] = {{"vfio_share_gpu", Kind::seen, "ordinary.registration"}};

const std::array rows{
    FactRow{"kernel, driver", {}},
    FactRow{"sub-range export", sub_range},
    FactRow{"scatter list", scatter_list},
    FactRow{"odd allocation, 3 MiB + 4 KiB", odd},
    FactRow{"address range from an interior pointer", recovery},
    FactRow{"reported granularity", granularity},
    FactRow{"import of its own dma-buf as DMABUF_FD", import_as_dma_buf},
    FactRow{"import of its own dma-buf as OPAQUE_FD", import_as_opaque},
    FactRow{"BAR of an NVMe controller registered as IOMEMORY, as root", register_as_root},
    FactRow{"the same, as uid 1000 without capabilities", register_as_user},
    FactRow{"IOMMU_IOAS_MAP_FILE of a GPU dma-buf", map_file},
    FactRow{"manner of export, as this library calls it", manner},
    FactRow{"dma-buf attributes of the device", attributes},
    FactRow{"export with the flag for a mapping through PCIe", pcie_flag},
    FactRow{"small allocations", small},
    FactRow{"export from base + 512", unaligned_start},
    FactRow{"export of 5000 bytes", unaligned_length},
    FactRow{"export of 0 bytes", no_bytes},
    FactRow{"export past the end of the backing", past_the_end},
    FactRow{"export from one allocation into another", two_allocations},
    FactRow{"exporter of the descriptor", exporter},
    FactRow{"size of the descriptor of 4 MiB", descriptor_size},
    FactRow{"mmap of the descriptor", descriptor_mmap},
    FactRow{"DMA_BUF_IOCTL_SYNC", descriptor_sync},
    FactRow{"export of VMM memory", vmm},
    FactRow{"export of pool memory", pool},
    FactRow{"address range from 100 bytes into pool memory", pool_recovery},
    FactRow{"export of managed memory", managed},
    FactRow{"export of pinned host memory", host_memory},
    FactRow{"export as an unprivileged user", memory_as_user},
    FactRow{"registration of a memfd's mapping", register_memfd},
};

/// Its entries in the report, whatever the flavour; a stub's are no machine's.
std::vector<const Json*> entries_of(const MachineReport& report, std::string_view question) {
    std::vector<const Json*> found;
    for (const Json& entry : report.probes()) {
        const ProbeName name = split_probe_name(text_of(entry, "probe"));
        if (name.question == question && name.flavour != "stub") {
            found.push_back(&entry);
        }
    }
    return found;
}

const Json* named(const Json& list, const char* member, std::string_view name) {
    for (const Json& one : list) {
        if (text_of(one, member) == name) {
            return &one;
        }
    }
    return nullptr;
}

/// Whether it was such a one who asked: the probe says whom it was run by, the one that asks last, else the host's
/// facts.
bool asked_by(const MachineReport& report, const Json& probe_report, Who who) {
    if (who == Who::anybody) {
        return true;
    }
    Json uid = member_of(report.host(), "uid");
    const Json& processes = member_of(probe_report, "processes");
    if (processes.is_object()) {
        for (const auto& [role, facts] : processes.items()) {
            if (role != "primary") { // it hands the device to the one who asks
                uid = member_of(facts, "effective_uid");
            }
        }
    }
    return uid.is_number() && (uid == 0) == (who == Who::root);
}

/// What one probe's report has for a source; empty when it has nothing.
std::string found_in(const Json& probe_report, const FactSource& source) {
    std::string text;
    switch (source.kind) {
    case Kind::answer:
    case Kind::sentence:
        if (const Json* const answer =
                named(list_of(member_of(probe_report, "verdict"), "answers"), "topic", source.name)) {
            text = text_of(*answer, source.kind == Kind::answer ? "answer" : "sentence");
        }
        text = text == "not_seen" ? std::string{} : text; // an observation says why
        break;
    case Kind::device: {
        const Json& device = member_of(probe_report, "device");
        const Json& gpu = member_of(device, "gpu");
        const Json& value = member_of(gpu.is_object() ? gpu : device, source.name);
        text = value.is_null() ? std::string{} : value_text(value, {});
        break;
    }
    case Kind::seen:
        for (const char* const list : {"observations", "controls"}) {
            const Json* const seen = named(list_of(probe_report, list), "name", source.name);
            if (seen == nullptr) {
                continue;
            }
            const Json& value = member_of(*seen, "value");
            std::string note = text_of(*seen, "note");
            constexpr std::string_view known = "not looked at: "; // "not seen" says so
            note.erase(0, note.rfind(known, 0) == 0 ? known.size() : 0);
            text = value.is_null() ? fmt::format("not seen{}{}", note.empty() ? "" : ": ", note)
                                   : value_text(value, text_of(*seen, "unit"));
            break;
        }
        break;
    }
    return text.empty() || source.title.empty() ? text : fmt::format("{} {}", source.title, text);
}

std::string kernel_and_driver(const MachineReport& report) {
    std::string text = text_of(report.host(), "kernel");
    for (const GpuFacts& gpu : report.gpus()) {
        if (!gpu.driver.empty()) {
            text += (text.empty() ? "" : "; ") + gpu.driver;
        }
    }
    return text.empty() ? not_recorded : text;
}

/// Whether a probe of this flavour found a GPU to ask.
bool flavour_is_there(const MachineReport& report, std::string_view flavour) {
    for (const Json& entry : report.probes()) {
        if (split_probe_name(text_of(entry, "probe")).flavour == flavour &&
            text_of(entry, "outcome") == probe_outcome::answered) {
            return true;
        }
    }
    return false;
}

std::string cell_of(const MachineReport& report, const Json& probe_report, const FactRow& row) {
    std::string cell;
    bool before = false; // the source before had something
    for (const FactSource& source : row.sources) {
        if ((source.only_if_missing && before) || !asked_by(report, probe_report, source.who)) {
            continue;
        }
        const std::string text = found_in(probe_report, source);
        before = !text.empty();
        if (before) {
            cell += (cell.empty() ? "" : "; ") + text;
        }
    }
    return cell;
}

} // namespace

const char* const not_recorded = "not recorded";

std::span<const FactRow> fact_rows() noexcept {
    return rows;
}

std::string value_text(const Json& value, std::string_view unit) {
    if (value.is_boolean()) {
        return value.get<bool>() ? "yes" : "no";
    }
    if (value.is_number_integer() && value >= 0 && unit == "bytes") {
        const auto bytes = value.get<std::uint64_t>();
        // Only what is a whole number of its unit, or a reader could not count back.
        const std::string size = human_size(bytes);
        const bool whole = size.find('.') == std::string::npos && bytes >= 1024;
        std::uint64_t step = 1;
        while (bytes / step >= 1024) {
            step *= 1024;
        }
        return whole && bytes % step == 0 ? size : fmt::format("{} bytes", bytes);
    }
    const std::string text = plain_text(value);
    return unit.empty() || unit == "outcome" || unit == "address" || value.is_null() || text.empty()
               ? text
               : fmt::format("{} {}", text, unit);
}

std::string fact_of(const MachineReport& report, const FactRow& row) {
    if (row.sources.empty()) {
        return kernel_and_driver(report);
    }
    std::string reason;
    std::vector<std::string> cells;
    bool asked = false;
    for (const Json* const entry : entries_of(report, row.sources.front().question)) {
        const std::string cell = cell_of(report, member_of(*entry, "report"), row);
        // Asked of two devices, by two users or of two GPUs, it may have come out in two ways.
        if (!cell.empty() && std::find(cells.begin(), cells.end(), cell) == cells.end()) {
            cells.push_back(cell);
        }
        asked = asked || text_of(*entry, "outcome") == probe_outcome::answered;
        // Of two flavours the one whose GPU is there has the reason that counts.
        if (reason.empty() || flavour_is_there(report, split_probe_name(text_of(*entry, "probe")).flavour)) {
            reason = text_of(*entry, "reason");
        }
    }
    if (!cells.empty()) {
        return fmt::format("{}", fmt::join(cells, " / "));
    }
    if (asked) {
        return not_recorded;
    }
    return reason.empty() ? not_recorded : fmt::format("not asked: {}", reason);
}

std::string sources_of(const FactRow& row) {
    if (row.sources.empty()) {
        return "the head: `kernel`, and what the probes say of the GPU's driver";
    }
    std::string text = fmt::format("{}: ", row.sources.front().question);
    bool first = true;
    for (const FactSource& source : row.sources) {
        const char* const kind = source.kind == Kind::answer     ? "answer "
                                 : source.kind == Kind::sentence ? "sentence of "
                                 : source.kind == Kind::device   ? "device's "
                                                                 : "";
        const char* const who = source.who == Who::root   ? " by root"
                                : source.who == Who::user ? " by another user"
                                                          : "";
        text += fmt::format("{}{}`{}`{}",
                            first                    ? ""
                            : source.only_if_missing ? ", else "
                                                     : ", ",
                            kind, source.name, who);
        first = false;
    }
    return text;
}

} // namespace upcie::cli
