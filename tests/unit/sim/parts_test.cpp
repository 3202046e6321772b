// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <fcntl.h>
#include <numeric>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim/raw_driver.hpp"

namespace upcie::sim::test {
namespace {

TEST(Options, ReadsEveryKey) {
    const auto options = Options::parse(
        "sim:size=2G,lba=4096,meta=8,ns=2,mdts=7,mqes=15,queues=9,vectors=3,dstrd=1,mpsmin=1,mpsmax=2,to=4,"
        "ready=5ms,msix=0x5000,vwc=off,vendor=0x1234,device=7,serial=S,model=M,firmware=F,thread=off,"
        "iova=0x1000..0xfffff,scatter=2,zero=on,seed=3,faults=lost@once");
    ASSERT_TRUE(options) << options.error().message();
    EXPECT_EQ(options->size, ByteCount{std::uint64_t{2} << 30});
    EXPECT_EQ(options->block_size, 4096U);
    EXPECT_EQ(options->metadata_size, 8U);
    EXPECT_EQ(options->namespaces, 2U);
    EXPECT_EQ(options->mdts, 7);
    EXPECT_EQ(options->mqes, 15);
    EXPECT_EQ(options->queues, 9);
    EXPECT_EQ(options->vectors, 3);
    EXPECT_EQ(options->dstrd, 1);
    EXPECT_EQ(options->mpsmin, 1);
    EXPECT_EQ(options->mpsmax, 2);
    EXPECT_EQ(options->to, 4);
    EXPECT_EQ(options->ready_delay.count(), 5);
    EXPECT_EQ(options->msix_table, 0x5000U);
    EXPECT_FALSE(options->volatile_cache);
    EXPECT_EQ(options->vendor, 0x1234);
    EXPECT_EQ(options->device, 7);
    EXPECT_EQ(options->serial + options->model + options->firmware, "SMF");
    EXPECT_FALSE(options->threaded);
    EXPECT_EQ(options->addresses.aperture.first, Iova{0x1000});
    EXPECT_EQ(options->addresses.aperture.last, Iova{0xfffff});
    EXPECT_EQ(options->addresses.pages_per_run, 2U);
    EXPECT_TRUE(options->addresses.use_zero);
    EXPECT_EQ(options->addresses.seed, 3U);
    EXPECT_EQ(options->faults.rules().size(), 1U);
    EXPECT_TRUE(Options::parse("sim"));
    EXPECT_TRUE(Options::parse("sim:"));
    EXPECT_TRUE(Options::parse("vectors=none")->no_interrupts);
}

TEST(Options, RefusesAndNamesTheKey) {
    for (const char* text : {"sim:colour=red",     "sim:size=0",       "sim:size=1X",
                             "sim:size=99999999T", "sim:size=5000",    "sim:lba=513",
                             "sim:ns=0",           "sim:ns=1025",      "sim:queues=0",
                             "sim:mqes=0",         "sim:mqes=65536",   "sim:dstrd=11",
                             "sim:mpsmin=5",       "sim:mdts=21",      "sim:mdts=-1",
                             "sim:thread=maybe",   "sim:thread",       "sim:ready=5",
                             "sim:msix=0x1000",    "sim:msix=0x5001",  "sim:iova=5..4",
                             "sim:scatter=0",      "sim:vectors=2049", "sim:serial=123456789012345678901",
                             "sim:faults=explode", "sim:size=",        "sim:,"}) {
        const auto options = Options::parse(text);
        EXPECT_FALSE(options) << text;
        if (!options) {
            EXPECT_TRUE(options.error().is(EINVAL)) << text;
            EXPECT_FALSE(options.error().hint.empty()) << text;
        }
    }
    EXPECT_NE(Options::parse("sim:colour=red").error().message().find("colour=red"), std::string::npos);
}

TEST(SimAddressSpace, AddressesAreNoPointersAndNotReused) {
    const auto space = *AddressSpace::create();
    std::uint64_t first = 0;
    {
        const Memory memory{*space, 8192};
        first = memory.address();
        EXPECT_NE(first, reinterpret_cast<std::uintptr_t>(memory.as()));
        EXPECT_GE(first, std::uint64_t{1} << 32);
    }
    const Memory again{*space, 8192};
    EXPECT_NE(again.address(), first);
    EXPECT_EQ(space->mapping_count(), 1U);
}

TEST(SimAddressSpace, SmallApertureFillsUpAndComesRound) {
    AddressSpaceOptions options;
    options.aperture = {Iova{0x10000}, Iova{0x14fff}}; // five pages: mappings of one page with a gap between
    const auto space = *AddressSpace::create(options);
    for (int round = 0; round < 4; ++round) {
        const Memory a{*space, 4096};
        const Memory b{*space, 4096};
        const Memory c{*space, 4096};
        void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        const auto full = space->map_memory(page, ByteCount{4096});
        ASSERT_FALSE(full);
        EXPECT_TRUE(full.error().is(ENOSPC));
        ::munmap(page, 4096);
    }
    options.aperture = {Iova{0x10000}, Iova{0x10000}};
    EXPECT_FALSE(AddressSpace::create(options));
}

TEST(SimAddressSpace, TopOfTheAddressSpace) {
    AddressSpaceOptions options;
    options.aperture = {Iova{~std::uint64_t{0} - 4095}, Iova{~std::uint64_t{0}}};
    const auto space = *AddressSpace::create(options);
    const Memory memory{*space, 4096};
    EXPECT_EQ(memory.address(), ~std::uint64_t{0} - 4095);
    EXPECT_FALSE(space->check(DmaAddress{memory.address()}, ByteCount{4096}, iommu::Access::read));
    EXPECT_TRUE(space->check(DmaAddress{memory.address()}, ByteCount{4097}, iommu::Access::read));
}

TEST(SimAddressSpace, ScattersAndStaysRepeatable) {
    AddressSpaceOptions options;
    options.pages_per_run = 2;
    const auto one = *AddressSpace::create(options);
    const auto two = *AddressSpace::create(options);
    Memory a{*one, 7 * 4096};
    Memory b{*two, 7 * 4096};
    ASSERT_EQ(a.mapping().extents().size(), 4U);
    EXPECT_TRUE(std::equal(a.mapping().extents().begin(), a.mapping().extents().end(), b.mapping().extents().begin()));
    EXPECT_FALSE(one->translating());
    std::iota(a.as(), a.as() + 7 * 4096, std::uint8_t{0});
    std::array<std::byte, 1> byte{};
    ASSERT_FALSE(one->read(DmaAddress{a.address(3 * 4096 + 5)}, byte));
    EXPECT_EQ(byte[0], static_cast<std::byte>(*a.as(3 * 4096 + 5)));
    EXPECT_TRUE(one->check(DmaAddress{a.address()}, ByteCount{3 * 4096}, iommu::Access::read)); // beyond its run
}

TEST(SimAddressSpace, MapsFiles) {
    const auto space = *AddressSpace::create();
    const int fd = ::memfd_create("test", 0);
    ASSERT_EQ(::ftruncate(fd, 8192), 0);
    ASSERT_EQ(::pwrite(fd, "hello", 5, 4096), 5);
    auto mapped = space->map_file(fd, ByteCount{4096}, ByteCount{4096});
    ASSERT_TRUE(mapped) << mapped.error().message();
    EXPECT_FALSE(space->map_file(fd, ByteCount{4096}, ByteCount{8192}));
    std::array<std::byte, 5> text{};
    ASSERT_FALSE(space->read(mapped->extents()[0].address, text));
    EXPECT_EQ(std::memcmp(text.data(), "hello", 5), 0);
    ASSERT_FALSE(space->write(mapped->extents()[0].address, std::as_bytes(std::span{"HELLO", 5})));
    char back[5] = {};
    ASSERT_EQ(::pread(fd, back, 5, 4096), 5);
    EXPECT_EQ(std::memcmp(back, "HELLO", 5), 0);
    ::close(fd);
    ASSERT_FALSE(space->read(mapped->extents()[0].address, text)); // the mapping holds the file
    EXPECT_FALSE(space->map_file(-1, ByteCount{0}, ByteCount{4096}));
}

TEST(SimFunction, MsixTableMakesAHole) {
    const RawDriver driver{"sim:size=1M,msix=0x5200,thread=off"};
    auto& function = *driver.function;
    const auto info = *function.region(0);
    ASSERT_EQ(info.areas.size(), 2U);
    EXPECT_EQ(info.areas[0].size, ByteCount{0x5000});
    EXPECT_EQ(info.areas[1].offset, ByteCount{0x6000});
    EXPECT_TRUE(function.map_region(0, ByteCount{0x1000}, ByteCount{0x1000}));
    EXPECT_FALSE(function.map_region(0, ByteCount{0x1000}, ByteCount{0x5000}));
    EXPECT_FALSE(function.map_region(0, ByteCount{0}, ByteCount{0}));
    EXPECT_TRUE(function.write_region(0, ByteCount{0x5204}, 4, 7));
    EXPECT_EQ(*function.read_region(0, ByteCount{0x5204}, 4), 7U);
    EXPECT_FALSE(function.read_region(0, info.size, 4));
    EXPECT_FALSE(function.read_region(0, ByteCount{2}, 4));
    EXPECT_FALSE(function.read_region(1, ByteCount{0}, 4));
    EXPECT_TRUE(function.region(4)->areas.empty());
    EXPECT_FALSE(function.region(7));
}

TEST(SimFunction, ConfigSpace) {
    const RawDriver driver{"sim:vendor=0x1234,device=0x5678,thread=off"};
    auto& function = *driver.function;
    EXPECT_EQ(*function.read_config(0, 4), 0x56781234U);
    EXPECT_EQ(*function.read_config(8, 4) >> 8, 0x010802U);
    bool msix = false;
    bool express = false;
    for (std::uint32_t at = *function.read_config(0x34, 1); at != 0; at = *function.read_config(at + 1, 1)) {
        msix = msix || *function.read_config(at, 1) == 0x11;
        express = express || *function.read_config(at, 1) == 0x10;
    }
    EXPECT_TRUE(msix && express);
    EXPECT_FALSE(driver.controller->bus_master());
    ASSERT_TRUE(function.set_bus_master(true));
    EXPECT_TRUE(driver.controller->bus_master());
    EXPECT_EQ(*function.read_config(4, 2) & 4, 4U);
    ASSERT_TRUE(function.write_config(0x58, 2, 0x8000)); // initiate function level reset
    EXPECT_FALSE(driver.controller->bus_master());
    ASSERT_TRUE(function.write_config(0, 4, 0));
    EXPECT_EQ(*function.read_config(0, 4), 0x56781234U);
    EXPECT_FALSE(function.read_config(4096, 1));
    EXPECT_FALSE(function.read_config(1, 2));
    EXPECT_FALSE(function.write_config(4094, 4, 0));
}

TEST(SimFunction, BarOutlivesTheFunction) {
    os::Mapping kept;
    {
        auto function = *open_function("sim:size=1M");
        kept = *function->map_region(0, ByteCount{0}, ByteCount{0x2000});
    }
    EXPECT_NE(*reinterpret_cast<std::uint32_t*>(kept.data()), 0U);
}

TEST(SimFunction, InterruptsGoToTheQueuesVector) {
    RawDriver driver{"sim:size=16M,queues=2"};
    const int admin = ::eventfd(0, EFD_NONBLOCK);
    const int io = ::eventfd(0, EFD_NONBLOCK);
    const int fds[] = {admin, -1, io};
    ASSERT_TRUE(driver.function->enable_interrupts(fds));
    ASSERT_TRUE(driver.enable());
    const auto quiet = driver.queue(1);
    const auto loud = driver.queue(2, 16, 1 | 2 | 2U << 16);
    std::uint64_t count = 0;
    EXPECT_EQ(::read(admin, &count, sizeof count), 8);
    EXPECT_GE(count, 1U);
    nvme::Command flush;
    flush.nsid = 1;
    driver.run(*quiet, flush);
    EXPECT_EQ(::read(io, &count, sizeof count), -1);
    driver.run(*loud, flush);
    driver.wait([&] { return ::read(io, &count, sizeof count) == 8; });
    EXPECT_EQ(count, 1U);
    ASSERT_TRUE(driver.function->disable_interrupts());
    driver.run(*loud, flush);
    EXPECT_EQ(::read(io, &count, sizeof count), -1);
    const int many[] = {-1, -1, -1, -1};
    EXPECT_FALSE(driver.function->enable_interrupts(many));
    ::close(admin);
    ::close(io);
    RawDriver none{"sim:vectors=none,thread=off"};
    EXPECT_EQ(*none.function->interrupt_count(), 0U);
    EXPECT_TRUE(none.function->enable_interrupts({many, 1}).error().is(ENOTSUP));
    EXPECT_EQ(driver.violations(), "");
}

TEST(SimMedium, KeepsNamespacesInAFile) {
    char path[] = "/tmp/upcie-sim-XXXXXX";
    const int fd = ::mkstemp(path);
    ASSERT_GE(fd, 0);
    const std::string spec = std::string{"sim:size=64K,ns=2,thread=off,file="} + path;
    {
        const RawDriver driver{spec};
        const std::vector<std::byte> block(512, std::byte{0x42});
        ASSERT_TRUE(driver.controller->write_medium(Nsid{2}, Lba{1}, block));
        EXPECT_FALSE(driver.controller->write_medium(Nsid{3}, Lba{1}, block));
        EXPECT_FALSE(driver.controller->write_medium(Nsid{2}, Lba{128}, block));
    }
    char byte = 0;
    ASSERT_EQ(::pread(fd, &byte, 1, 65536 + 512), 1);
    EXPECT_EQ(byte, 0x42);
    ASSERT_EQ(::pwrite(fd, "\x43", 1, 512), 1);
    const RawDriver driver{spec};
    std::vector<std::byte> block(512);
    ASSERT_TRUE(driver.controller->read_medium(Nsid{1}, Lba{1}, block));
    EXPECT_EQ(block[0], std::byte{0x43});
    const auto other = open_function(std::string{"sim:size=128K,file="} + path + ",ns=3");
    ASSERT_FALSE(other);
    EXPECT_TRUE(other.error().is(EINVAL));
    EXPECT_FALSE(open_function("sim:file=/nonexistent/x"));
    ::close(fd);
    ::unlink(path);
}

} // namespace
} // namespace upcie::sim::test
