// SPDX-License-Identifier: BSD-3-Clause
// Checks of the iommu, memory and os rooms against a real kernel: no device is driven, what is compared are the
// kernel's answers and, where addresses are physical, two witnesses of them.
//   address_space_check iommufd CDEV_NODE | limit CDEV_NODE | pagemap | type1 GROUP_NODE | noiommu CDEV_NODE
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <upcie/iommu/iommufd.hpp>
#include <upcie/iommu/pagemap.hpp>
#include <upcie/iommu/type1.hpp>
#include <upcie/memory/buffer.hpp>
#include <upcie/os/credentials.hpp>
#include <upcie/vfio/cdev.hpp>

namespace {

using namespace upcie;
using namespace upcie::literals;
using iommu::Access;

int failures = 0;

void expect(bool good, const std::string& what) {
    fmt::print("{} {}\n", good ? "ok  " : "BAD ", what);
    failures += good ? 0 : 1;
}

/// Expects success and hands the value on; without it there is nothing left to check.
template <class T>
T need(Result<T> result, const char* what) {
    if (!result) {
        fmt::print("BAD  {}: {}\n", what, result.error().message());
        std::exit(1);
    }
    return std::move(*result);
}

template <class T>
void refused(const Result<T>& result, int code, const std::string& what) {
    const bool good = !result && result.error().is(code) && !result.error().hint.empty();
    expect(good, fmt::format("{}: {}", what, result ? "it worked" : result.error().message()));
}

void check_buffer(const iommu::AddressSpace& space, const memory::DmaBuffer& buffer) {
    std::uint64_t sum = 0;
    for (const auto& extent : buffer.extents()) {
        sum += extent.length.value();
    }
    expect(sum == buffer.size().value(),
           fmt::format("{}: {} bytes in {} runs, the first at 0x{:x}, {}", space.describe(), sum,
                       buffer.extents().size(), buffer.extents().front().address.value(),
                       buffer.mapped_by_file() ? "by file" : "by address"));
}

/// The device that `space` serves: only with one does the kernel pin what is mapped, and refuse what it cannot pin.
os::Fd attach(os::System& system, const iommu::Iommufd& iommufd, std::uint32_t ioas_id, const char* node) {
    auto device = need(vfio::open_cdev(system, node), "cdev");
    need(vfio::bind_iommufd(system, device.get(), iommufd.fd(), node), "bind");
    need(vfio::attach_ioas(system, device.get(), ioas_id, node), "attach");
    return device;
}

void check_iommufd(os::System& system, const char* node) {
    const auto iommufd = need(iommu::Iommufd::open(system), "open");
    expect(need(iommufd->rlimit_mode(), "rlimit mode") == iommu::RlimitMode::per_user, "charged per user by default");
    expect(iommufd->set_rlimit_mode(iommu::RlimitMode::per_process).has_value(), "charging per process can be set");
    expect(need(iommufd->rlimit_mode(), "rlimit mode") == iommu::RlimitMode::per_process, "and is");
    const auto space = need(iommu::IoasAddressSpace::create(iommufd), "create");
    refused(iommufd->set_rlimit_mode(iommu::RlimitMode::per_user), EBUSY, "too late once there is an object");
    const auto id = space->ioas_id();
    for (const auto& range : need(space->iova_ranges(), "ranges")) {
        fmt::print("     range 0x{:x} to 0x{:x}\n", range.first.value(), range.last.value());
    }
    expect(need(space->iova_ranges(), "ranges").size() == 1, "an IOAS without a device has one range");
    expect(iommufd->map(id, reinterpret_cast<void*>(0x10000), 4_KiB, Access::read, Iova{0x5000}).has_value() &&
               iommufd->unmap(id, Iova{0x5000}, 4_KiB).has_value(),
           "without a device nothing is pinned: memory that is not there can be mapped");
    const auto device = attach(system, *iommufd, id, node);
    expect(need(space->iova_ranges(), "ranges").size() >= 2, "a device takes the MSI window out");
    {
        const auto plain = need(memory::DmaBuffer::allocate(system, space, 1_MiB), "plain buffer");
        check_buffer(*space, plain);
        expect(plain.mapped_by_file(), "the kernel maps memfds");
        auto huge = need(memory::Buffer::allocate(system, 4_MiB, memory::Backing::hugepage_2m), "hugepages");
        check_buffer(*space, need(memory::DmaBuffer::map(std::move(huge), space), "map hugepages"));
        const Iova where{plain.extents().front().address.value()};
        refused(iommufd->map(id, plain.data(), 1_MiB, Access::read, where), EEXIST, "an IOVA in use");
        refused(iommufd->unmap(id, where, 64_KiB), ENOENT, "part of a mapping");
        refused(iommufd->physical(id, where, 4_KiB), EOPNOTSUPP, "GET_PA of an IOAS with no no-IOMMU device");
        refused(iommufd->map(id, plain.data() + 1, 4_KiB, Access::read, Iova{0x1000}), EINVAL, "unaligned");
        refused(iommufd->map(id, plain.data(), 4_KiB, Access::read, Iova{0xfee00000}), EINVAL, "the MSI window");
    }
    const auto memory = need(memory::Buffer::allocate(system, 64_KiB), "buffer");
    refused(iommufd->unmap(id, Iova{0x1000}, 4_KiB), ENOENT, "nothing mapped");
    refused(space->map_file(-1, 0_B, 4_KiB), EBADF, "descriptor -1");
    refused(space->map_file(memory.fd(), 64_KiB, 4_KiB), EINVAL, "past the file's end");
    const auto file = need(os::open_file(system, "/proc/self/exe", O_RDONLY), "a regular file");
    refused(space->map_file(file.get(), 0_B, 4_KiB), EINVAL, "a regular file");
    refused(space->map_memory(reinterpret_cast<void*>(0x10000), 4_KiB), EFAULT, "memory that is not there");
    refused(iommu::IoasAddressSpace::adopt(iommufd, id + 40), ENOENT, "a guessed id");
    refused(iommufd->destroy(id + 40), ENOENT, "destroying a guessed id");

    const std::vector<iommu::IovaRange> allowed{{Iova{0x100000}, Iova{0x2fffff}}};
    expect(iommufd->allow_iovas(id, allowed).has_value(), "ranges can be promised");
    const auto here = need(space->map_memory(memory.data(), 64_KiB), "map in the promise");
    const auto at = here.extents().front().address.value();
    expect(at >= 0x100000 && at <= 0x2fffff, fmt::format("the kernel keeps to them: 0x{:x}", at));
    const iommu::IovaRange window{Iova{0x280000}, Iova{0x28ffff}};
    const auto second =
        need(iommu::IoasAddressSpace::adopt(iommufd, id, iommu::IoasOwnership::borrowed, window), "window");
    const auto there = need(second->map_memory(memory.data(), 64_KiB), "map in the window");
    expect(there.extents().front().address.value() == 0x280000, "a window is kept to");
    refused(second->map_memory(memory.data(), 4_KiB), ENOSPC, "a full window");
}

/// As a user without capabilities: the limit binds, cumulatively, and the message names it.
void check_limit(os::System& system, const char* node) {
    const auto iommufd = need(iommu::Iommufd::open(system), "open");
    const auto space = need(iommu::IoasAddressSpace::create(iommufd), "create");
    const auto device = attach(system, *iommufd, space->ioas_id(), node);
    expect(os::set_memlock_limit(system, {256_KiB, 256_KiB}).has_value(), "memlock is set to 256 KiB");
    if (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0) {
        expect(false, "become nobody");
        return;
    }
    refused(iommu::PagemapAddressSpace::create(system), EACCES, "pagemap after a change of user");
    expect(system.prctl(PR_SET_DUMPABLE, 1) == 0, "/proc/self is its own again");
    const auto who = need(os::read_credentials(system), "credentials");
    expect(who.effective_uid == 65534 && who.effective.names().empty(), "nobody, without capabilities");
    const auto first = need(memory::DmaBuffer::allocate(system, space, 192_KiB), "192 of 256 KiB");
    const auto pinned = need(os::read_memory_accounting(system), "accounting");
    expect(pinned.pinned == 192_KiB, fmt::format("VmPin {} VmLck {}", pinned.pinned.value(), pinned.locked.value()));
    const auto second = memory::DmaBuffer::allocate(system, space, 128_KiB);
    refused(second, ENOMEM, "128 KiB more");
    expect(!second && second.error().hint.find("RLIMIT_MEMLOCK is 262144 bytes") != std::string::npos,
           "the limit is named");
    refused(iommu::PagemapAddressSpace::create(system), EPERM, "pagemap without CAP_SYS_ADMIN");
    refused(os::set_memlock_limit(system, {1_MiB, 1_MiB}), EPERM, "raising the limit");
}

void check_pagemap(os::System& system) {
    const std::shared_ptr<iommu::AddressSpace> space = need(iommu::PagemapAddressSpace::create(system), "create");
    const auto buffer = need(memory::DmaBuffer::allocate(system, space, 6_MiB), "hugepages");
    check_buffer(*space, buffer);
    expect(buffer.buffer().backing() == memory::Backing::hugepage_2m, "hugepages were taken");
    auto plain = need(memory::Buffer::allocate(system, 2_MiB), "plain buffer");
    refused(space->map_file(plain.fd(), 0_B, 2_MiB), EOPNOTSUPP, "ordinary pages");
    const auto all = memory::Buffer::allocate(system, 1_GiB, memory::Backing::hugepage_2m);
    refused(all, ENOMEM, "more hugepages than there are");
    void* const copied = ::mmap(nullptr, 2U << 20, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT), -1, 0);
    refused(space->map_memory(copied, 2_MiB), EOPNOTSUPP, "private hugepages");
}

void check_type1(os::System& system, const char* node) {
    auto group = need(os::open_file(system, node, O_RDWR), "group");
    const auto space = need(iommu::Type1Container::open(system), "container");
    const auto memory = need(memory::Buffer::allocate(system, 64_KiB), "buffer");
    refused(space->map_memory(memory.data(), 64_KiB), EINVAL, "before a group is attached");
    need(space->attach_group(group.get()).map([] { return 0; }), "attach");
    for (const auto& range : need(space->iova_ranges(), "ranges")) {
        fmt::print("     range 0x{:x} to 0x{:x}\n", range.first.value(), range.last.value());
    }
    expect(need(space->iova_ranges(), "ranges").size() >= 2, "the MSI window is left out");
    const auto before = need(space->info(), "info").available_mappings;
    expect(before.has_value() && *before > 0, fmt::format("{} mappings are left", before.value_or(0)));
    {
        const auto buffer = need(memory::DmaBuffer::allocate(system, space, 1_MiB), "buffer");
        check_buffer(*space, buffer);
        expect(!buffer.mapped_by_file(), "type1 maps by address");
        expect(need(space->info(), "info").available_mappings == *before - 1, "one less");
    }
    expect(need(space->info(), "info").available_mappings == before, "and back");
    refused(space->map_memory(reinterpret_cast<void*>(0x10000), 4_KiB), EFAULT, "memory that is not there");
    refused(space->attach_group(group.get()), EINVAL, "the same group again");
    expect(space->detach_group(group.get()).has_value(), "detach");
    refused(space->map_memory(memory.data(), 64_KiB), EINVAL, "after the last group");
    need(space->attach_group(group.get()).map([] { return 0; }), "attach again");
    expect(space->map_memory(memory.data(), 64_KiB).has_value(), "and map again");
}

void check_noiommu(os::System& system, const char* node) {
    const auto iommufd = need(iommu::Iommufd::open(system), "open");
    const auto space = need(iommu::NoIommuIoasAddressSpace::create(iommufd), "create");
    const auto device = attach(system, *iommufd, space->ioas_id(), node);
    const auto plain = need(memory::DmaBuffer::allocate(system, space, 1_MiB), "plain buffer");
    check_buffer(*space, plain);
    // The second witness: pagemap, on hugepages mapped both ways.
    auto huge = need(memory::Buffer::allocate(system, 8_MiB, memory::Backing::hugepage_2m), "hugepages");
    const auto pagemap = need(iommu::PagemapAddressSpace::create(system), "pagemap");
    const auto witness = need(pagemap->map_memory(huge.data(), huge.size()), "pagemap's word");
    const auto by_address = need(space->map_memory(huge.data(), huge.size()), "by address");
    const auto by_file = need(space->map_file(huge.fd(), 0_B, huge.size()), "by file");
    const std::vector<iommu::Extent> wanted{witness.extents().begin(), witness.extents().end()};
    expect(std::vector<iommu::Extent>(by_file.extents().begin(), by_file.extents().end()) == wanted,
           fmt::format("GET_PA and pagemap agree, by file ({} runs)", wanted.size()));
    expect(std::vector<iommu::Extent>(by_address.extents().begin(), by_address.extents().end()) == wanted,
           "and by address");
}

} // namespace

int main(int count, char** arguments) {
    os::System& system = os::real_system();
    const std::string what = count > 1 ? arguments[1] : "";
    if (what == "iommufd" && count == 3) {
        check_iommufd(system, arguments[2]);
    } else if (what == "limit" && count == 3) {
        check_limit(system, arguments[2]);
    } else if (what == "pagemap" && count == 2) {
        check_pagemap(system);
    } else if (what == "type1" && count == 3) {
        check_type1(system, arguments[2]);
    } else if (what == "noiommu" && count == 3) {
        check_noiommu(system, arguments[2]);
    } else {
        fmt::print(stderr,
                   "usage: {} iommufd CDEV_NODE | limit CDEV_NODE | pagemap | type1 GROUP_NODE | noiommu CDEV_NODE\n",
                   arguments[0]);
        return 2;
    }
    return failures == 0 ? 0 : 1;
}
