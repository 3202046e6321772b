// SPDX-License-Identifier: BSD-3-Clause
// Drives pci, vfio and open against the real kernel in the VM.
//   vfio_check bind BDF DRIVER | restore BDF | refuse-mounted BDF
//   vfio_check path BDF cdev|group|noiommu|uio    opens that way and looks at everything a Function can do
//   vfio_check share BDF BDF                      two functions, one iommufd and IOAS
//   vfio_check second BDF                         what a second opener gets
//   vfio_check delegate BDF                       a function adopted from descriptors
//   vfio_check viability BDF                      a group with a member on a kernel driver: expects it to be named
// Prints a line a check; the status is 1 when one failed.
#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <uapi/vfio.hpp>
#include <upcie/memory/buffer.hpp>
#include <upcie/open.hpp>
#include <upcie/os/sysfs.hpp>
#include <upcie/pci/config_space.hpp>
#include <upcie/pci/driver_binding.hpp>
#include <upcie/vfio/cdev.hpp>
#include <upcie/vfio/device.hpp>

using namespace upcie;

namespace {

int failures = 0;

bool expect(bool good, std::string_view what, const std::string& detail = {}) {
    fmt::print("{} {}{}{}\n", good ? "ok  " : "FAIL", what, detail.empty() ? "" : ": ", detail);
    failures += good ? 0 : 1;
    return good;
}

template <class T>
bool expect(const Result<T>& result, std::string_view what) {
    return expect(result.has_value(), what, result ? std::string{} : result.error().message());
}

/// The operation must fail with this errno, and its message must have the words.
template <class T>
void expect_error(const Result<T>& result, int code, std::string_view words, std::string_view what) {
    if (result) {
        expect(false, what, "it succeeded");
        return;
    }
    const std::string message = result.error().message();
    expect(result.error().is(code) && message.find(words) != std::string::npos, what, message);
}

os::System& host() {
    return os::real_system();
}

Result<std::unique_ptr<pci::Function>> open(const std::string& name, Path path = Path::automatic,
                                            std::shared_ptr<iommu::AddressSpace> space = nullptr) {
    OpenOptions options;
    options.path = path;
    options.address_space = std::move(space);
    return open_function(host(), name, options);
}

void check_config(pci::Function& f) {
    const auto ids = f.read_config(0, 4);
    if (expect(ids, "config space reads")) {
        expect(*ids == (f.identity().vendor | static_cast<unsigned>(f.identity().device) << 16),
               "its ids are those of sysfs", fmt::format("{:#x}", *ids));
    }
    const auto list = pci::capabilities(f);
    expect(list && !list->empty(), "capability list", list ? fmt::format("{} entries", list->size()) : "");
    const auto extended = pci::extended_capabilities(f);
    expect(extended, "extended capability list");
    const auto msix = pci::msix_layout(f);
    expect(msix && *msix, "MSI-X capability",
           msix && *msix ? fmt::format("{} vectors, table in BAR {} at {:#x}", (*msix)->vectors, (*msix)->table_bar,
                                       (*msix)->table_offset.value())
                         : "");
    const auto flr = pci::has_function_level_reset(f);
    expect(flr, "reset capability");
    expect(!f.read_config(4096, 4) && !f.read_config(1, 4), "config space ends at 4096 and is aligned");
}

void check_registers(pci::Function& f) {
    const auto bar = f.region(0);
    if (!expect(bar, "BAR 0 is described")) {
        return;
    }
    std::string areas;
    for (const auto& area : bar->areas) {
        areas += fmt::format(" [{:#x}, +{:#x})", area.offset.value(), area.size.value());
    }
    expect(bar->size.value() >= 0x2000 && !bar->areas.empty(), "BAR 0 can be mapped",
           fmt::format("{:#x} bytes, areas{}", bar->size.value(), areas));
    auto mapping = f.map_region(0, bar->areas.front().offset, ByteCount{0x2000});
    if (!expect(mapping, "BAR 0 maps")) {
        return;
    }
    // NVMe 2.0, 3.1.3: CAP at 0, VS at 8, CSTS at 0x1c.
    std::uint32_t low = *reinterpret_cast<const volatile std::uint32_t*>(mapping->data());
    std::uint32_t high = *reinterpret_cast<const volatile std::uint32_t*>(mapping->data() + 4);
    std::uint32_t version = *reinterpret_cast<const volatile std::uint32_t*>(mapping->data() + 8);
    const std::uint64_t cap = static_cast<std::uint64_t>(high) << 32 | low;
    expect((cap & 0xffff) > 0 && cap != ~std::uint64_t{0} && version >> 16 >= 1, "CAP and VS read sensibly",
           fmt::format("CAP {:#x} VS {:#x}", cap, version));
    const auto by_call = f.read_region(0, ByteCount{0}, 8);
    expect(by_call && *by_call == cap, "CAP is the same without the mapping");
    expect_error(f.map_region(0, bar->size, ByteCount{0x1000}), EINVAL, "", "a mapping outside is refused");
    expect_error(f.region(7), EINVAL, "", "region 7 is refused");
}

void check_interrupts(pci::Function& f, bool expected) {
    const auto count = f.interrupt_count();
    if (!expected) {
        expect(count && *count == 0, "no interrupts on this path");
        return;
    }
    if (!expect(count && *count > 1, "MSI-X vectors", count ? std::to_string(*count) : "")) {
        return;
    }
    std::vector<os::Fd> owners;
    std::vector<int> fds;
    for (unsigned i = 0; i < *count; ++i) {
        auto fd = os::make_eventfd(host());
        if (!fd) {
            expect(fd, "eventfd");
            return;
        }
        fds.push_back(fd->get());
        owners.push_back(std::move(*fd));
    }
    expect(f.enable_interrupts(fds), "every vector gets an eventfd");
    expect(f.enable_interrupts(std::span<const int>{fds}.first(2)), "a second set replaces the first");
    // The kernel can raise a vector by itself (VFIO_IRQ_SET_DATA_NONE with ACTION_TRIGGER): is it the right eventfd?
    if (auto* v = dynamic_cast<vfio::VfioFunction*>(&f)) {
        uapi::VfioIrqSet set{};
        set.argsz = sizeof(set);
        set.flags = uapi::vfio_irq_set_data_none | uapi::vfio_irq_set_action_trigger;
        set.index = uapi::vfio_pci_msix_irq_index;
        set.start = 1;
        set.count = 1;
        (void)host().ioctl(v->device_fd(), uapi::vfio_device_set_irqs, &set);
        std::array<pollfd, 2> waiting{pollfd{fds[0], POLLIN, 0}, pollfd{fds[1], POLLIN, 0}};
        const int ready = host().poll(waiting.data(), waiting.size(), 1000);
        expect(ready == 1 && waiting[1].revents == POLLIN, "vector 1 signals eventfd 1 alone");
    }
    std::vector<int> too_many(*count + 1, -1);
    expect_error(f.enable_interrupts(too_many), EINVAL, "", "more vectors than there are is refused");
    expect(f.disable_interrupts(), "interrupts go off");
    expect(f.disable_interrupts(), "and again");
}

void check_memory(pci::Function& f) {
    const auto space = f.address_space();
    auto buffer = memory::DmaBuffer::allocate(host(), space, ByteCount{1 << 21});
    if (!expect(buffer, "memory maps")) {
        return;
    }
    std::uint64_t total = 0;
    for (const auto& extent : buffer->extents()) {
        total += extent.length.value();
    }
    expect(total == 1 << 21, "its extents cover it", fmt::format("{} extents", buffer->extents().size()));
    expect(!space->translating() || buffer->extents().size() == 1, "one run where an IOMMU translates");
}

void check_dmabuf(vfio::VfioFunction& f) {
    const auto answer = f.probe(vfio::Feature::dma_buf);
    expect(answer.state == vfio::FeatureState::available, "BAR export is available",
           std::string{to_string(answer.state)});
    const auto unknown = f.probe(static_cast<vfio::Feature>(0x7fff));
    expect(unknown.state == vfio::FeatureState::kernel_too_old, "an unknown feature is called so",
           std::string{to_string(unknown.state)});
    const auto bar = f.region(0);
    auto dmabuf = f.export_bar(0, ByteCount{0}, bar->size);
    if (!expect(dmabuf, "BAR 0 exports")) {
        return;
    }
    expect_error(f.export_bar(0, ByteCount{0}, bar->size + ByteCount{0x1000}), EINVAL, "", "past its end it does not");
    expect_error(f.export_bar(3, ByteCount{0}, ByteCount{0}), ENODEV, "no such memory BAR", "an absent BAR neither");
    auto mapped = f.address_space()->map_file(dmabuf->get(), ByteCount{0}, bar->size);
    if (f.address_space()->kind() == iommu::AddressSpaceKind::type1) {
        expect_error(mapped, EOPNOTSUPP, "", "type1 maps no files");
        return;
    }
    if (expect(mapped, "the dma-buf maps into the address space") && !f.address_space()->translating()) {
        const auto info = pci::find_function(host(), *f.identity().bdf);
        expect(mapped->extents().size() == 1 && mapped->extents()[0].address.value() == info->bar(0)->address.value(),
               "its address is the BAR's own of sysfs", fmt::format("{:#x}", mapped->extents()[0].address.value()));
    }
    if (mapped) {
        expect(mapped->unmap(), "and unmaps");
    }
    const auto past = f.address_space()->map_file(dmabuf->get(), bar->size, ByteCount{0x1000});
    expect(!past, "past its end it does not map", past ? "" : past.error().message());
}

void check_resets(pci::Function& f) {
    expect(f.reset(), "function reset");
    if (auto* v = dynamic_cast<vfio::VfioFunction*>(&f)) {
        const auto info = v->hot_reset_info();
        if (expect(info, "hot reset information")) {
            std::string list;
            for (const auto& a : info->affected) {
                list += fmt::format(" {} (id {}, {})", a.bdf.to_string(), a.id, a.owned ? "owned" : "not owned");
            }
            expect(!info->affected.empty(), "hot reset affects", list);
        }
        // QEMU's root port does not raise Data Link Layer Link Active again: the kernel says ENOTTY when it has waited
        // for it.
        const auto done = v->hot_reset();
        expect(done || done.error().is(ENOTTY), "hot reset", done ? "" : done.error().message());
    }
    const auto cap = f.read_region(0, ByteCount{0}, 4);
    expect(cap && *cap != 0xffffffff, "registers answer after the resets");
}

int path(const std::string& bdf, const std::string& name) {
    Path wanted = Path::automatic;
    for (const Path p : {Path::cdev, Path::group, Path::noiommu_cdev, Path::uio}) {
        wanted = to_string(p) == name ? p : wanted;
    }
    const auto info = pci::find_function(host(), *pci::Bdf::parse(bdf));
    for (const auto& verdict : examine_paths(host(), *info)) {
        fmt::print("     {} {}: {}\n", verdict.usable ? "open  " : "closed", to_string(verdict.path), verdict.reason);
    }
    {
        auto opened = open(bdf, wanted);
        if (!expect(opened, "opens")) {
            return 1;
        }
        auto& f = **opened;
        fmt::print("     {} ({})\n     {}\n", f.path(), f.path_reason(), f.address_space()->describe());
        check_config(f);
        check_registers(f);
        check_interrupts(f, wanted != Path::uio);
        check_memory(f);
        if (auto* v = dynamic_cast<vfio::VfioFunction*>(&f)) {
            check_dmabuf(*v);
        }
        check_resets(f);
        expect(f.set_bus_master(true), "bus master on");
        const auto command = f.read_config(4, 2);
        expect(command && (*command & 6) == 6, "command register says so");
    }
    // As root sees it in sysfs, behind the driver's back.
    const auto config = os::open_file(host(), ("/sys/bus/pci/devices/" + bdf + "/config").c_str(), O_RDONLY);
    std::uint16_t command = 0xffff;
    const bool got = config && host().pread(config->get(), &command, 2, 4) == 2;
    expect(got && (command & 4) == 0, "bus master is off after the close", fmt::format("command {:#x}", command));
    expect(open(bdf, wanted), "opens again");
    const auto automatic = open(bdf);
    expect(automatic, "opens automatically");
    if (automatic) {
        fmt::print("     {} ({})\n", (*automatic)->path(), (*automatic)->path_reason());
    }
    return failures;
}

int share(const std::string& first, const std::string& second) {
    auto a = open(first, Path::cdev);
    if (!expect(a, "the first opens")) {
        return 1;
    }
    auto b = open(second, Path::automatic, (*a)->address_space());
    if (!expect(b, "the second opens on the first one's address space")) {
        return 1;
    }
    expect((*a)->address_space() == (*b)->address_space(), "they share it");
    auto* va = dynamic_cast<vfio::VfioFunction*>(a->get());
    auto* vb = dynamic_cast<vfio::VfioFunction*>(b->get());
    expect(va->device_id() != vb->device_id(), "with ids of their own");
    auto dmabuf = va->export_bar(0, ByteCount{0}, ByteCount{0x1000});
    expect(dmabuf && vb->address_space()->map_file(dmabuf->get(), ByteCount{0}, ByteCount{0x1000}),
           "one's BAR maps for both");
    a->reset();
    check_memory(**b);
    expect_error(open(second, Path::group, (*b)->address_space()), EINVAL, "does not go with",
                 "the wrong path is named");
    return failures;
}

int second(const std::string& bdf) {
    const auto info = pci::find_function(host(), *pci::Bdf::parse(bdf));
    {
        auto first = open(bdf, Path::cdev);
        if (!expect(first, "the first opens")) {
            return 1;
        }
        expect_error(open(bdf, Path::cdev), EINVAL, "bound already", "the second bind is explained");
        expect_error(open(bdf, Path::group), EBUSY, "exclude each other", "so is the group while the cdev is bound");
        auto raw = vfio::open_cdev(host(), info->vfio_cdev);
        expect(raw, "a second open as such succeeds");
        expect_error(vfio::get_info(host(), raw->get(), "second"), EINVAL, "BIND_IOMMUFD",
                     "but answers nothing unbound");
        expect_error(vfio::get_region(host(), raw->get(), 0, "second"), EINVAL, "BIND_IOMMUFD", "no region either");
        expect_error(vfio::attach_ioas(host(), raw->get(), 1, "second"), EINVAL, "not bound",
                     "and attaches to nothing");
        expect_error(vfio::bind_iommufd(host(), raw->get(), raw->get(), "second"), EBADFD, "/dev/iommu",
                     "a descriptor that is no iommufd is named");
    }
    {
        auto first = open(bdf, Path::group);
        if (!expect(first, "the group opens after the cdev is closed")) {
            return 1;
        }
        expect_error(open(bdf, Path::cdev), EBUSY, "exclude each other", "the cdev while the group is open");
        expect_error(open(bdf, Path::group), EBUSY, "open elsewhere", "the group a second time");
    }
    expect(open(bdf, Path::cdev), "the cdev opens after the group is closed");
    return failures;
}

int delegate(const std::string& bdf) {
    auto owner = open(bdf, Path::cdev);
    if (!expect(owner, "the owner opens") || !expect((*owner)->set_bus_master(true), "bus master on")) {
        return 1;
    }
    auto* v = dynamic_cast<vfio::VfioFunction*>(owner->get());
    auto space = std::dynamic_pointer_cast<iommu::IoasAddressSpace>(v->address_space());
    const auto copy_of = [](int fd) { return os::Fd{host(), ::dup(fd)}; };
    {
        auto iommufd = iommu::Iommufd::adopt(host(), copy_of(space->iommufd()->fd()));
        auto borrowed = iommu::IoasAddressSpace::adopt(*iommufd, space->ioas_id());
        if (!expect(borrowed, "the IOAS is borrowed by its id")) {
            return 1;
        }
        auto borrower = vfio::VfioFunction::adopt(host(), copy_of(v->device_fd()), *borrowed, bdf);
        if (!expect(borrower, "the device is adopted")) {
            return 1;
        }
        expect((*borrower)->identity().class_code == 0x010802 && (*borrower)->identity().vendor != 0, "with its ids");
        check_registers(**borrower);
        check_memory(**borrower);
    }
    const auto command = v->read_config(4, 2);
    expect(command && (*command & 4) != 0, "the borrower's end leaves the bus master on");
    check_memory(*v);
    auto unbound = vfio::open_cdev(host(), pci::find_function(host(), *pci::Bdf::parse(bdf))->vfio_cdev);
    expect_error(vfio::VfioFunction::adopt(host(), std::move(*unbound), space, "unbound"), EINVAL, "BIND_IOMMUFD",
                 "an unbound descriptor is refused");
    return failures;
}

int viability(const std::string& bdf) {
    for (const Path p : {Path::cdev, Path::group}) {
        const auto refused = open(bdf, p);
        expect_error(refused, EPERM, "kernel driver", fmt::format("{} names the other device", to_string(p)));
        const auto info = pci::find_function(host(), *pci::Bdf::parse(bdf));
        const std::string others = vfio::describe(vfio::group_obstacles(host(), *info));
        expect(!refused && !others.empty() && refused.error().message().find(others) != std::string::npos, "by address",
               others);
    }
    return failures;
}

int bind(const std::string& bdf, const std::string& driver) {
    auto binding = pci::DriverBinding::bind(host(), *pci::Bdf::parse(bdf), driver);
    if (!expect(binding, "binds")) {
        return 1;
    }
    expect(pci::find_function(host(), *pci::Bdf::parse(bdf))->driver == driver, "driver is", driver);
    expect(binding->restore(), "gives back");
    expect(pci::find_function(host(), *pci::Bdf::parse(bdf))->driver == binding->previous_driver(), "old driver is",
           binding->previous_driver());
    expect(pci::DriverBinding::bind(host(), *pci::Bdf::parse(bdf), driver), "binds again and stays");
    return failures;
}

int restore(const std::string& bdf) {
    const auto now = pci::give_back_to_kernel(host(), *pci::Bdf::parse(bdf));
    expect(now, "gives back to the kernel");
    if (now) {
        fmt::print("     {}\n", now->empty() ? "no driver" : *now);
    }
    return failures;
}

int refuse_mounted(const std::string& bdf) {
    expect_error(pci::DriverBinding::bind(host(), *pci::Bdf::parse(bdf), "vfio-pci"), EBUSY, "Its disks are in use",
                 "a disk in use is not taken away");
    return failures;
}

} // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    const auto is = [&](const char* verb, std::size_t count) { return words.size() == count + 1 && words[0] == verb; };
    int status = 2;
    if (is("bind", 2)) {
        status = bind(words[1], words[2]);
    } else if (is("restore", 1)) {
        status = restore(words[1]);
    } else if (is("refuse-mounted", 1)) {
        status = refuse_mounted(words[1]);
    } else if (is("path", 2)) {
        status = path(words[1], words[2]);
    } else if (is("share", 2)) {
        status = share(words[1], words[2]);
    } else if (is("second", 1)) {
        status = second(words[1]);
    } else if (is("delegate", 1)) {
        status = delegate(words[1]);
    } else if (is("viability", 1)) {
        status = viability(words[1]);
    } else {
        fmt::print(stderr, "usage: see the head of {}\n", __FILE__);
        return 2;
    }
    return status == 0 ? 0 : 1;
}
