// SPDX-License-Identifier: BSD-3-Clause
// What can be mapped into the IOAS of an attached device.
#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>

#include "vfio_cdev.hpp"

namespace upcie::probes {

namespace {

constexpr std::uint64_t huge_page = 2 * 1024 * 1024;
constexpr std::uint64_t length = 4 * page;
constexpr std::uint64_t msi_window = 0xfee00000; // x86: writes there are interrupts, never memory

/// Tells an outcome, and takes the mapping away again.
void tell(Report& report, const Requests& requests, const Session& session, const char* name,
          const Answered<std::uint64_t>& mapped, std::uint64_t bytes, const char* note = "") {
    report.outcome(name, mapped.error, note);
    if (mapped.ok()) {
        static_cast<void>(requests.unmap(session.iommufd.get(), session.ioas, mapped.value, bytes));
    }
}

void look_at_addresses(Report& report, const Requests& requests, const Session& session, const os::Mapping& memory) {
    const int iommufd = session.iommufd.get();
    const auto at = [&](std::uint64_t iova) {
        return requests.map_at(iommufd, session.ioas, memory.data(), page, iova);
    };
    const Answered<std::uint64_t> first = requests.map(iommufd, session.ioas, memory.data(), length);
    const bool held = first.ok();
    report.control("mapping", "control.map_anonymous", held, outcome_word(first.error),
                   "ordinary memory can be mapped by address", first.error);
    if (!held) {
        return;
    }
    report.outcome("iova.overlapping", at(first.value).error);
    report.outcome("iova.unaligned", at(first.value + 16 * length + 1).error);
    tell(report, requests, session, "iova.msi_window", at(msi_window), page);
    const auto ranges = requests.iova_ranges(iommufd, session.ioas);
    if (ranges.ok() && !ranges.value.empty() && ranges.value.back().last < ~std::uint64_t{0} - 2 * page) {
        tell(report, requests, session, "iova.above_aperture", at(ranges.value.back().last + 1), page);
    } else {
        report.not_seen("iova.above_aperture", "the aperture ends where addresses end");
    }
    report.outcome("unmap.partial", requests.unmap(iommufd, session.ioas, first.value, page).error);
    const Answered<std::uint64_t> whole = requests.unmap(iommufd, session.ioas, first.value, length);
    report.outcome("unmap.whole", whole.error);
    report.observe("unmap.whole_bytes", whole.value, "bytes");
    report.outcome("unmap.again", requests.unmap(iommufd, session.ioas, first.value, length).error);
}

void look_at_udmabuf(Report& report, const Requests& requests, const Session& session) {
    const Answered<os::Fd> control = requests.open("/dev/udmabuf");
    if (!control.ok()) {
        report.not_seen("udmabuf.create", "/dev/udmabuf says " + outcome_word(control.error));
        return;
    }
    const Answered<os::Fd> memfd = requests.memfd("upcie-probe", MFD_ALLOW_SEALING, length);
    report.outcome("udmabuf.create_unsealed", requests.udmabuf(control.value.get(), memfd.value.get(), length).error);
    static_cast<void>(requests.system().fcntl(memfd.value.get(), F_ADD_SEALS, F_SEAL_SHRINK));
    const Answered<os::Fd> buffer = requests.udmabuf(control.value.get(), memfd.value.get(), length);
    report.outcome("udmabuf.create", buffer.error, "the memfd sealed against shrinking");
    if (!buffer.ok()) {
        return;
    }
    const int iommufd = session.iommufd.get();
    tell(report, requests, session, "udmabuf.map_file",
         requests.map_file(iommufd, session.ioas, buffer.value.get(), 0, length), length);
    tell(report, requests, session, "udmabuf.map_file_of_its_memfd",
         requests.map_file(iommufd, session.ioas, memfd.value.get(), 0, length), length);
    const Answered<os::Mapping> view = requests.map_shared(buffer.value.get(), 0, length);
    report.outcome("udmabuf.mmap", view.error);
    if (view.ok()) {
        tell(report, requests, session, "udmabuf.map_address_of_mmap",
             requests.map(iommufd, session.ioas, view.value.data(), length), length);
    }
}

} // namespace

void look_at_mappings(Report& report, const Requests& requests, const Session& session) {
    const int iommufd = session.iommufd.get();
    const Answered<os::Mapping> memory = requests.anonymous(length);
    if (!memory.ok()) {
        report.control("mapping", "control.map_anonymous", false, outcome_word(memory.error), "no memory to map");
        return;
    }
    look_at_addresses(report, requests, session, memory.value);

    const Answered<os::Fd> memfd = requests.memfd("upcie-probe", 0, length);
    const Answered<std::uint64_t> by_file = requests.map_file(iommufd, session.ioas, memfd.value.get(), 0, length);
    report.control("mapping", "control.map_file_of_memfd", by_file.ok(), outcome_word(by_file.error),
                   "a memfd can be mapped by file, so that a refusal is about the other file", by_file.error);
    if (by_file.ok()) {
        static_cast<void>(requests.unmap(iommufd, session.ioas, by_file.value, length));
    }
    const Answered<os::Mapping> view = requests.map_shared(memfd.value.get(), 0, length);
    if (view.ok()) {
        tell(report, requests, session, "map.memfd_by_address",
             requests.map(iommufd, session.ioas, view.value.data(), length), length);
    }
    const Answered<os::Fd> huge = requests.memfd("upcie-probe-huge", MFD_HUGETLB, huge_page);
    report.outcome("memfd.hugetlb_create", huge.error);
    if (huge.ok()) {
        tell(report, requests, session, "map.hugetlb_memfd_by_file",
             requests.map_file(iommufd, session.ioas, huge.value.get(), 0, huge_page), huge_page,
             "ENOMEM: no huge pages reserved");
    }
    const int closed = requests.map_file(iommufd, session.ioas, -1, 0, length).error;
    report.control("mapping", "control.map_file_of_no_file", closed == EBADF, outcome_word(closed),
                   "a descriptor that is none is noticed", closed);
    os::Fd program{requests.system(), requests.system().open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
    if (program) {
        tell(report, requests, session, "map.regular_file_by_file",
             requests.map_file(iommufd, session.ioas, program.get(), 0, page), page);
    }
    look_at_udmabuf(report, requests, session);

    const Observation* const huge_map = report.find("map.hugetlb_memfd_by_file");
    report.answer("mapping", "memfd_and_anonymous",
                  std::string{"Ordinary memory can be mapped by address, memfds also by file"} +
                      (huge_map != nullptr && huge_map->error == 0 ? " (of huge pages too)" : "") +
                      "; see the observations for what the kernel says to other files and addresses.");
}

void look_at_bar_export(Report& report, const Requests& requests, const Session& session) {
    const int iommufd = session.iommufd.get();
    const int device = session.device.get();
    const Answered<uapi::VfioRegionInfo> bar = requests.region_info(device, 0);
    if (!bar.ok() || bar.value.size < 2 * page) {
        report.not_seen("bar.export_slice", "BAR 0 has less than two pages");
        return;
    }
    const Answered<os::Mapping> registers = requests.map_shared(device, bar.value.offset, page);
    report.outcome("bar.mmap", registers.error);
    if (registers.ok()) {
        tell(report, requests, session, "bar.map_address_of_mmap",
             requests.map(iommufd, session.ioas, registers.value.data(), page), page);
    }
    const Answered<os::Fd> slice = requests.export_dmabuf(device, 0, {{0, page}});
    report.outcome("bar.export_slice", slice.error, "VFIO_DEVICE_FEATURE_DMA_BUF of the first page");
    if (!slice.ok()) {
        report.answer("bar_export", "refused",
                      "The kernel exports no dma-buf of this BAR: older than the feature, or off.");
        return;
    }
    const auto map = [&](const os::Fd& file, std::uint64_t bytes) {
        return requests.map_file(iommufd, session.ioas, file.get(), 0, bytes);
    };
    tell(report, requests, session, "bar.map_file_of_slice", map(slice.value, page), page);
    tell(report, requests, session, "bar.map_file_past_its_end", map(slice.value, 2 * page), 2 * page);
    report.outcome("bar.mmap_of_dmabuf", requests.map_shared(slice.value.get(), 0, page).error);
    const Answered<os::Fd> whole = requests.export_dmabuf(device, 0, {{0, bar.value.size}});
    report.outcome("bar.export_whole", whole.error);
    if (whole.ok()) {
        tell(report, requests, session, "bar.map_file_of_whole", map(whole.value, bar.value.size), bar.value.size);
    }
    if (bar.value.size >= 3 * page) {
        const Answered<os::Fd> two = requests.export_dmabuf(device, 0, {{0, page}, {2 * page, page}});
        report.outcome("bar.export_two_ranges", two.error);
        if (two.ok()) {
            tell(report, requests, session, "bar.map_file_of_two_ranges", map(two.value, 2 * page), 2 * page);
        }
    }
    // Revocation: while the exporter's memory decode is off, its dma-buf leads nowhere.
    constexpr std::uint16_t memory_decode = 1U << 1;
    if (requests.change_command(device, 0, memory_decode).ok()) {
        tell(report, requests, session, "bar.map_file_decode_off", map(slice.value, page), page);
        static_cast<void>(requests.change_command(device, memory_decode, 0));
        tell(report, requests, session, "bar.map_file_decode_on_again", map(slice.value, page), page);
    }
    const bool mapped = report.succeeded("bar.map_file_of_slice");
    report.answer(
        "bar_export", mapped ? "mappable" : "not_mappable",
        mapped ? "Slices of a BAR are exported as dma-bufs, and MAP_FILE takes them into an IOAS: a device can reach "
                 "another's BAR that way, until the exporter revokes it."
               : "A BAR is exported as a dma-buf, but MAP_FILE does not take it.");
}

} // namespace upcie::probes
