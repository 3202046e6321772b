// SPDX-License-Identifier: BSD-3-Clause
#include "vfio_cdev.hpp"

#include <fmt/format.h>

#include "nvme_witness.hpp"

namespace upcie::probes {

namespace {

/// Where the second process maps its memory, in its own IOAS: nothing of the first's lies there (the kernel gives
/// addresses from below, and the first maps less than this).
constexpr std::uint64_t trap_iova = std::uint64_t{1} << 30;

Result<void> before_binding(Report& report, const Requests& requests, const pci::FunctionInfo& function,
                            Session& session) {
    Answered<os::Fd> iommufd = requests.open("/dev/iommu");
    report.outcome("first.open_iommu", iommufd.error);
    Answered<os::Fd> device = requests.open(function.vfio_cdev);
    report.outcome("first.open", device.error);
    if (!iommufd.ok() || !device.ok()) {
        return fail(iommufd.ok() ? device.error : iommufd.error, "open",
                    iommufd.ok() ? function.vfio_cdev : "/dev/iommu", "Run as a user who may read and write it.");
    }
    session.iommufd = std::move(iommufd.value);
    session.device = std::move(device.value);
    report.outcome("first.device_info_before_bind", requests.device_info(session.device.get()).error);
    report.outcome("first.region_info_before_bind", requests.region_info(session.device.get(), 0).error);
    return {};
}

/// The group's node, where the kernel has one; the two ways to a device exclude each other.
std::string group_node(const pci::FunctionInfo& function) {
    if (!function.iommu_group) {
        return {};
    }
    return fmt::format("/dev/vfio/{}{}", function.iommu_group->noiommu ? "noiommu-" : "", function.iommu_group->number);
}

Result<void> bind_and_attach(Report& report, const Requests& requests, const pci::FunctionInfo& function,
                             Session& session) {
    const int device = session.device.get();
    const int iommufd = session.iommufd.get();
    const std::string group = group_node(function);
    if (group.empty()) {
        report.not_seen("first.bind_while_group_open", "the device has no IOMMU group");
    } else if (const Answered<os::Fd> opened = requests.open(group); opened.ok()) {
        report.outcome("first.bind_while_group_open", requests.bind(device, iommufd).error);
    } else {
        report.not_seen("first.bind_while_group_open", group + " says " + outcome_word(opened.error));
    }

    const Answered<std::uint32_t> bound = requests.bind(device, iommufd);
    report.outcome("first.bind", bound.error);
    if (!bound.ok()) {
        return fail(bound.error, "VFIO_DEVICE_BIND_IOMMUFD", function.vfio_cdev,
                    "Another process has it, or another device of its IOMMU group is on a kernel driver (EPERM).");
    }
    session.device_id = bound.value;
    report.outcome("first.bind_again_same_fd", requests.bind(device, iommufd).error);
    if (!group.empty()) {
        report.outcome("first.group_open_while_bound", requests.open(group).error);
    }
    const Answered<uapi::VfioDeviceInfo> info = requests.device_info(device);
    report.outcome("first.device_info", info.error);
    report.observe("first.region_count", info.value.num_regions, "regions");
    const Answered<uapi::VfioRegionInfo> bar = requests.region_info(device, 0);
    report.outcome("first.region_info", bar.error);
    report.observe("first.bar0_bytes", bar.value.size, "bytes");

    const Answered<std::uint32_t> ioas = requests.ioas_alloc(iommufd);
    report.outcome("first.ioas_alloc", ioas.error);
    session.ioas = ioas.value;
    const int attached = requests.attach(device, session.ioas);
    report.outcome("first.attach", attached);
    if (!ioas.ok() || attached != 0) {
        return fail(ioas.ok() ? attached : ioas.error, "attaching", function.vfio_cdev,
                    "Every device of its IOMMU group must be on vfio-pci or on no driver.");
    }
    const Answered<uapi::IommuHwInfo> hardware = requests.hw_info(iommufd, session.device_id);
    report.outcome("first.hw_info", hardware.error);
    report.observe("first.hw_info_type", hardware.value.out_data_type, {},
                   "linux/iommufd.h: 0 none, 1 Intel, 2 Arm SMMUv3, 4 AMD");
    const auto ranges = requests.iova_ranges(iommufd, session.ioas);
    report.outcome("first.iova_ranges", ranges.error);
    Value list = Value::array();
    for (const uapi::IommuIovaRange& one : ranges.value) {
        list.push_back(hex(one.start) + "-" + hex(one.last));
    }
    report.observe("first.iova_range_list", list, "address");
    return {};
}

/// The second process's word for `step`, taken into the report.
Result<Message> findings_of_second(Report& report, Channel& second, const char* step) {
    Result<Message> message = second.expect(step);
    if (!message) {
        return message;
    }
    if (!message->data.contains("findings") || !report.take_findings(message->data.at("findings"))) {
        return fail(EPROTO, "reading findings", "the second process", "Use the same build on both sides.");
    }
    return message;
}

/// The trap: a mapping in a fresh IOAS succeeds; whether the device's writes arrive there, only the device can tell.
Result<void> look_into_the_trap(Report& report, const Requests& requests, const pci::FunctionInfo& function,
                                const Session& session, const Message& from_second) {
    if (!function.is_nvme()) {
        report.not_seen("second.fresh_ioas_dma", "only an NVMe controller can be told to write somewhere");
        return {};
    }
    if (function.vfio_name.rfind("noiommu-", 0) == 0) {
        report.not_seen("second.fresh_ioas_dma", "without an IOMMU, an IOVA is not an address for the device");
        return {};
    }
    if (from_second.fds.empty() || !report.succeeded("second.fresh_ioas_map")) {
        report.not_seen("second.fresh_ioas_dma", "the second process has no mapping in an IOAS of its own");
        return {};
    }
    Answered<os::Mapping> theirs = requests.map_shared(from_second.fds.front().get(), 0, page);
    if (!theirs.ok()) {
        return fail(theirs.error, "mmap", "the second process's memory", "This is unexpected: run the probe again.");
    }
    Result<SharedMemory> memory = make_shared_memory(requests, "upcie-probe", DmaWitness::rings_length + page);
    if (!memory) {
        return tl::unexpected{memory.error()};
    }
    const std::uint64_t length = memory->view.size().value();
    const Answered<std::uint64_t> iova =
        requests.map_file(session.iommufd.get(), session.ioas, memory->file.get(), 0, length);
    if (!iova.ok()) {
        return fail(iova.error, "IOMMU_IOAS_MAP_FILE", "the rings' memory", "Raise RLIMIT_MEMLOCK (ulimit -l).");
    }
    Result<DmaWitness> witness = DmaWitness::open(requests, session.device.get(), memory->view.data(), iova.value);
    if (!witness) {
        return tl::unexpected{witness.error()};
    }
    if (Result<void> started = witness->start(); !started) {
        return started;
    }
    std::byte* const own = memory->view.data() + DmaWitness::rings_length;
    const DmaWitness::Sight good = witness->identify(own, iova.value + DmaWitness::rings_length);
    report.control("fresh_ioas", "control.dma_through_attached_ioas", good.landed, good.word(),
                   "the device can write to memory in the IOAS that it is attached to");
    const DmaWitness::Sight trapped = witness->identify(theirs.value.data(), trap_iova);
    report.observe("second.fresh_ioas_dma", trapped.word(), {}, "what the device did with the address of that mapping");
    const bool lost = !trapped.landed;
    report.answer(
        "fresh_ioas", lost ? "trap" : "reaches_the_device",
        lost ? "An IOAS that the second process makes for itself takes its mappings without complaint, but the "
               "device is not attached to it: its writes to such an address do not arrive in that memory."
             : "Memory in the second process's own IOAS was reached by the device.");
    return witness->stop();
}

void judge(Report& report, const pci::FunctionInfo& function) {
    report.answer(
        "opener", "works",
        "The first opener gets nothing from the cdev before BIND_IOMMUFD, and everything after it: region info, "
        "registers, an IOAS to attach to and mappings in it.");
    const bool bound = report.succeeded("second.bind_own_iommufd") || report.succeeded("second.bind_first_iommufd");
    report.answer(
        "second_opener", bound ? "shares" : "refused",
        bound ? "A second opener could bind the device as well."
              : fmt::format("A second process {} {}, and the kernel then refuses to bind it, to an iommufd of its "
                            "own ({}) as to the first's ({}): it gets neither region info nor an attachment.",
                            report.succeeded("second.open") ? "can open" : "cannot even open", function.vfio_cdev,
                            outcome_word(report.find("second.bind_own_iommufd")->error.value_or(0)),
                            outcome_word(report.find("second.bind_first_iommufd")->error.value_or(0))));
}

} // namespace

Result<void> ask_vfio_cdev(Report& report, const Requests& requests, const pci::FunctionInfo& function,
                           Channel& second) {
    Session session;
    Result<void> step = before_binding(report, requests, function, session);
    if (step) {
        step = bind_and_attach(report, requests, function, session);
    }
    if (!step) {
        return step;
    }
    look_at_mappings(report, requests, session);
    look_at_bar_export(report, requests, session);

    // The second opener, while the first has the device.
    step = second.send("try", {{"trap_iova", trap_iova}}, {session.iommufd.get()});
    if (!step) {
        return step;
    }
    const Result<Message> tried = findings_of_second(report, second, "tried");
    if (!tried) {
        return tl::unexpected{tried.error()};
    }
    step = look_into_the_trap(report, requests, function, session, *tried);
    if (!step) {
        return step;
    }

    // ... and once it does not: that the second can do then shows that it was the first who stood in its way.
    session.device.reset();
    session.iommufd.reset();
    step = second.send("released");
    if (!step) {
        return step;
    }
    const Result<Message> took = findings_of_second(report, second, "took");
    if (!took) {
        return tl::unexpected{took.error()};
    }
    judge(report, function);
    return {};
}

Result<void> be_second_opener(const Requests& requests, const std::string& cdev, Channel& first) {
    Report report{"vfio_cdev", {}, "second"};
    Result<Message> task = first.expect("try");
    if (!task) {
        return tl::unexpected{task.error()};
    }
    if (task->fds.empty() || !task->data.contains("trap_iova")) {
        return fail(EPROTO, "reading the task", "the first process", "Use the same build on both sides.");
    }
    const int firsts_iommufd = task->fds.front().get();
    const Answered<os::Fd> device = requests.open(cdev);
    report.outcome("second.open", device.error);
    const Answered<os::Fd> iommufd = requests.open("/dev/iommu");
    report.outcome("second.open_iommu", iommufd.error);
    const int own = device.ok() ? device.value.get() : -1;
    report.outcome("second.bind_own_iommufd", requests.bind(own, iommufd.value.get()).error);
    report.outcome("second.bind_first_iommufd", requests.bind(own, firsts_iommufd).error);
    report.outcome("second.device_info", requests.device_info(own).error);
    report.outcome("second.region_info", requests.region_info(own, 0).error);

    const Answered<std::uint32_t> ioas = requests.ioas_alloc(iommufd.value.get());
    report.outcome("second.fresh_ioas_alloc", ioas.error);
    report.outcome("second.attach_fresh_ioas", requests.attach(own, ioas.value));
    Result<SharedMemory> memory = make_shared_memory(requests, "upcie-probe-second", page);
    if (!memory) {
        return tl::unexpected{memory.error()};
    }
    const Answered<std::uint64_t> mapped = requests.map_at(iommufd.value.get(), ioas.value, memory->view.data(), page,
                                                           task->data.at("trap_iova").get<std::uint64_t>());
    report.outcome("second.fresh_ioas_map", mapped.error, "looks like success; see second.fresh_ioas_dma");
    Result<void> step = first.send("tried", {{"findings", report.share_findings()}}, {memory->file.get()});
    if (!step) {
        return step;
    }
    task->fds.clear(); // the first's iommufd is not to be kept alive from here

    const Result<Message> released = first.expect("released");
    if (!released) {
        return tl::unexpected{released.error()};
    }
    Report after{"vfio_cdev", {}, "second"};
    const Answered<std::uint32_t> bound = requests.bind(own, iommufd.value.get());
    after.control("second_opener", "control.second_bind_after_release", bound.ok(), outcome_word(bound.error),
                  "the same process and descriptor, once the first opener has closed the device", bound.error);
    return first.send("took", {{"findings", after.share_findings()}});
}

} // namespace upcie::probes
