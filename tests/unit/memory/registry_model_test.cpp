// SPDX-License-Identifier: BSD-3-Clause
// The registry against the plainest model there is: a list of ranges, and a page table for what lies under them. A
// million random operations over host memory and the memory of stub GPUs, in one registry whose addresses are physical.
#include <array>
#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <upcie/gpu/flavour.hpp>
#include <upcie/gpu/stub.hpp>
#include <upcie/memory/device_exports.hpp>
#include <upcie/memory/registry.hpp>
#include <upcie/os/system.hpp>

namespace upcie::memory {
namespace {

using gpu::stub::Manner;
using gpu::stub::Stub;

constexpr std::uint64_t page = 4096;

/// Host memory lies on the bus by a rule: pages in groups of four, each group's place scrambled.
std::uint64_t bus_of_host(std::uint64_t virtual_page) {
    const std::uint64_t group = virtual_page / 4;
    return (((group * 0x9e37'79b9) & 0xffff'ffff) * 8 + virtual_page % 4) * page; // groups never meet
}

class PhysicalSpace final : public iommu::AddressSpace {
  public:
    [[nodiscard]] iommu::AddressSpaceKind kind() const noexcept override { return iommu::AddressSpaceKind::simulated; }
    [[nodiscard]] std::string describe() const override { return "a test's physical address space"; }
    [[nodiscard]] bool translating() const noexcept override { return false; }
    [[nodiscard]] Result<std::vector<iommu::IovaRange>> iova_ranges() override {
        return std::vector<iommu::IovaRange>{};
    }
    [[nodiscard]] ByteCount granule() const noexcept override { return ByteCount{page}; }
    [[nodiscard]] std::size_t mapped() const { return mapped_; }

  protected:
    Result<Mapped> do_map_memory(void* start, ByteCount length, iommu::Access) override {
        Mapped result;
        const auto first = reinterpret_cast<std::uintptr_t>(start) / page;
        for (std::uint64_t i = 0; i < length.value() / page; ++i) {
            result.extents.push_back({DmaAddress{bus_of_host(first + i)}, ByteCount{page}});
        }
        ++mapped_;
        return result;
    }
    Result<Mapped> do_map_file(int, ByteCount, ByteCount, iommu::Access) override {
        return fail(EOPNOTSUPP, "map file", "test", "nothing here is mapped by file");
    }
    Result<void> do_unmap(std::uint64_t, ByteCount) override {
        --mapped_;
        return {};
    }

  private:
    std::size_t mapped_ = 0;
};

enum Outcome : std::size_t {
    registered_host,
    registered_device,
    registered_several_allocations,
    refused_empty,
    refused_wrapping,
    refused_unknown_to_the_device,
    refused_past_the_allocation,
    unregistered,
    announced,
    reclaimed_nothing,
    reclaimed_something,
    resolved_whole,
    resolved_in_part,
    resolved_by_an_older_one,
    resolved_in_device_memory,
    resolved_all_extents,
    resolved_by_handle,
    not_registered,
    out_of_bounds,
    empty_range,
    handle_out_of_bounds,
    outcomes,
};
constexpr std::array<const char*, outcomes> names{
    "host memory registered",
    "device memory registered",
    "several allocations registered at once",
    "refused: empty",
    "refused: wraps",
    "refused: the device does not know it",
    "refused: leaves its allocations",
    "unregistered",
    "reader announced",
    "reclaim found memory in use",
    "reclaim found none in use",
    "resolved whole",
    "resolved up to a run's end",
    "resolved by an older one",
    "resolved in device memory",
    "resolved to all extents",
    "resolved by handle",
    "not registered",
    "out of bounds",
    "empty range",
    "handle: out of bounds",
};

struct Range {
    std::uint64_t base = 0;
    std::uint64_t length = 0;
    bool device = false;
    Registration registration;
};

/// A stub GPU and what its allocations look like on the bus, page by page.
class Device {
  public:
    Device(Manner manner, std::map<std::uint64_t, std::uint64_t>& bus) {
        gpu::stub::Options options;
        options.manner = manner;
        options.udmabuf_node.clear();
        options.runs = {ByteCount{16 << 10}, ByteCount{4 << 10}, ByteCount{64 << 10}};
        options.piece = Stub::backing_unit; // larger allocations are several that follow each other
        stub_.emplace(Stub::create(os::real_system(), options).value());
        DeviceExports::Options how;
        how.importer = [stub = *stub_](const gpu::Export& exported) mutable -> Result<DeviceExports::Import> {
            auto list = stub.scatter_list(exported);
            if (!list) {
                return tl::unexpected{list.error()};
            }
            return DeviceExports::Import{std::move(*list), nullptr};
        };
        exports_ = std::make_shared<DeviceExports>(std::make_shared<gpu::FlavourRuntime<Stub>>(*stub_), how);
        for (const std::uint64_t bytes :
             {std::uint64_t{512}, 5 * page + 24, std::uint64_t{300'000}, std::uint64_t{3} << 20}) {
            const std::uint64_t base = stub_->allocate(ByteCount{bytes}).value().value();
            allocations_.push_back({base, bytes});
            for (std::uint64_t at = base / page * page; at < base + bytes; at += page) {
                bus[at / page] = bus_of(at, manner);
            }
        }
    }
    [[nodiscard]] DeviceExports& exports() { return *exports_; }
    [[nodiscard]] const std::vector<std::pair<std::uint64_t, std::uint64_t>>& allocations() const {
        return allocations_;
    }

  private:
    /// By an export of that page alone; where such a one describes the whole object, by counting pages from its base.
    std::uint64_t bus_of(std::uint64_t at, Manner manner) {
        const auto exported = stub_->export_range(DevicePointer{at}, ByteCount{page}).value();
        const auto list = stub_->scatter_list(exported).value();
        std::uint64_t inside = 0;
        if (manner == Manner::whole_object) {
            inside = at - stub_->allocation_of(DevicePointer{at}).value().base.value() / page * page;
        }
        return list.extents(ByteCount{inside}, ByteCount{page}).value().front().address.value();
    }

    std::optional<Stub> stub_;
    std::shared_ptr<DeviceExports> exports_;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> allocations_;
};

class RegistryModel : public testing::Test {
  protected:
    std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
    void saw(Outcome outcome) { ++seen_[outcome]; }

    [[nodiscard]] std::uint64_t bus_of(std::uint64_t at) const {
        const auto known = device_bus_.find(at / page);
        return (known != device_bus_.end() ? known->second : bus_of_host(at / page)) + at % page;
    }
    /// From `at`, as far as the bus is contiguous.
    [[nodiscard]] Extent first_extent(std::uint64_t at, std::uint64_t bytes) const {
        const std::uint64_t start = bus_of(at);
        std::uint64_t length = std::min(bytes, page - at % page);
        while (length < bytes && bus_of(at + length) == start + length) {
            length += std::min(page, bytes - length);
        }
        return {DmaAddress{start}, ByteCount{length}};
    }
    [[nodiscard]] std::vector<Extent> all_extents(std::uint64_t at, std::uint64_t bytes) const {
        std::vector<Extent> extents;
        for (std::uint64_t done = 0; done < bytes; done += extents.back().length.value()) {
            extents.push_back(first_extent(at + done, bytes - done));
        }
        return extents;
    }
    /// The newest that holds all of it; `touched` when one holds the first byte.
    [[nodiscard]] const Range* holder(std::uint64_t at, std::uint64_t bytes, bool& touched) const {
        touched = false;
        for (auto one = live_.rbegin(); one != live_.rend(); ++one) {
            if (one->base <= at && at - one->base < one->length) {
                touched = true;
                if (bytes <= one->length - (at - one->base)) {
                    return &*one;
                }
            }
        }
        return nullptr;
    }

    /// Crowded pages, around a boundary of 2 MiB, and wide; or somewhere in an allocation.
    void pick_host(std::uint64_t& base, std::uint64_t& length) {
        switch (below(8)) {
        case 0:
        case 1:
        case 2:
            base = 0x7000'0000 + below(16384);
            length = 1 + below(6000);
            break;
        case 7:
            base = 0x7000'0000 + (below(8) << 20);
            length = (1 + below(8)) << 17;
            break;
        default:
            base = 0x7040'0000 - 8192 + below(4) * 4096;
            length = (1 + below(4)) * 4096;
        }
    }
    Device& pick_device(std::uint64_t& base, std::uint64_t& length) {
        Device& device = *devices_[below(devices_.size())];
        // One more time the largest, which is several allocations.
        const auto& [start, size] = device.allocations()[std::min(below(5), std::uint64_t{3})];
        const std::uint64_t inside = below(size);
        base = start + (below(4) == 0 ? 0 : inside);
        length = 1 + below(start + size - base);
        return device;
    }
    void pick(std::uint64_t& base, std::uint64_t& length) {
        if (below(3) == 0) {
            static_cast<void>(pick_device(base, length));
        } else {
            pick_host(base, length);
        }
    }

    void add_host() {
        std::uint64_t base = 0;
        std::uint64_t length = 0;
        pick_host(base, length);
        auto made = registry_->register_memory(reinterpret_cast<void*>(base), ByteCount{length});
        ASSERT_TRUE(made) << made.error().message();
        live_.push_back({base, length, false, std::move(*made)});
        saw(registered_host);
    }
    void add_device() {
        std::uint64_t base = 0;
        std::uint64_t length = 0;
        Device& device = pick_device(base, length);
        auto made = registry_->register_device_memory(device.exports(), DevicePointer{base}, ByteCount{length});
        ASSERT_TRUE(made) << made.error().message();
        live_.push_back({base, length, true, std::move(*made)});
        saw(registered_device);
        if (base / Stub::backing_unit.value() != (base + length - 1) / Stub::backing_unit.value()) {
            saw(registered_several_allocations);
        }
    }
    void add_what_is_refused() {
        std::uint64_t base = 0;
        std::uint64_t length = 0;
        Device& device = pick_device(base, length);
        const auto in_device = [&](std::uint64_t start, std::uint64_t bytes) {
            const auto made =
                registry_->register_device_memory(device.exports(), DevicePointer{start}, ByteCount{bytes});
            return made ? 0 : made.error().code;
        };
        switch (below(4)) {
        case 0:
            ASSERT_EQ(in_device(base, 0), EINVAL);
            ASSERT_FALSE(registry_->register_memory(reinterpret_cast<void*>(0x7000'0000), ByteCount{}));
            saw(refused_empty);
            break;
        case 1:
            ASSERT_EQ(in_device(base, ~std::uint64_t{0} - below(base)), EINVAL);
            ASSERT_FALSE(registry_->register_memory(reinterpret_cast<void*>(0x7000'0000),
                                                    ByteCount{~std::uint64_t{0} - below(4096)}));
            saw(refused_wrapping);
            break;
        case 2:
            ASSERT_EQ(in_device(0x7000'0000 + below(page), 1 + below(page)), EFAULT);
            saw(refused_unknown_to_the_device);
            break;
        default: {
            const auto& [start, size] = device.allocations().back(); // nothing follows it
            ASSERT_EQ(in_device(start + below(size), size + 1 + below(page)), EFAULT);
            saw(refused_past_the_allocation);
        }
        }
    }
    void remove() {
        live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(below(live_.size())));
        ++waiting_;
        saw(unregistered);
    }
    void announce_or_reclaim() {
        if (below(2) == 0) {
            reader_.announce(reader_.epoch());
            waiting_ = 0;
            saw(announced);
            return;
        }
        ASSERT_EQ(registry_->reclaim(), waiting_);
        if (waiting_ == 0) {
            std::size_t host = 0;
            for (const auto& one : live_) {
                host += one.device ? 0 : 1;
            }
            ASSERT_EQ(space_->mapped(), host);
        }
        saw(waiting_ != 0 ? reclaimed_nothing : reclaimed_something);
    }

    void look_up() {
        std::uint64_t base = 0;
        std::uint64_t length = 0;
        pick(base, length);
        const std::uint64_t bytes = below(64) == 0 ? 0 : 1 + below(length);
        const Resolution got = reader_.resolve(reinterpret_cast<const void*>(base), ByteCount{bytes});
        bool touched = false;
        const Range* const range = holder(base, bytes, touched);
        if (bytes == 0) {
            ASSERT_EQ(got.refusal, Refusal::empty);
            saw(empty_range);
        } else if (range == nullptr) {
            ASSERT_EQ(got.refusal, touched ? Refusal::out_of_bounds : Refusal::not_registered);
            saw(touched ? out_of_bounds : not_registered);
        } else {
            ASSERT_TRUE(got);
            ASSERT_EQ(got.extent, first_extent(base, bytes));
            saw(got.extent.length.value() == bytes ? resolved_whole : resolved_in_part);
            if (range->device) {
                saw(resolved_in_device_memory);
            }
            if (range != &live_.back()) {
                saw(resolved_by_an_older_one);
            }
        }
    }
    void look_up_all() {
        std::uint64_t base = 0;
        std::uint64_t length = 0;
        pick(base, length);
        const std::uint64_t bytes = 1 + below(std::min<std::uint64_t>(length, 100'000));
        const auto got = registry_->resolve(reinterpret_cast<const void*>(base), ByteCount{bytes});
        bool touched = false;
        if (holder(base, bytes, touched) == nullptr) {
            ASSERT_FALSE(got);
            ASSERT_EQ(got.error().code, EFAULT);
            return;
        }
        ASSERT_TRUE(got);
        ASSERT_EQ(*got, all_extents(base, bytes));
        saw(resolved_all_extents);
    }
    void look_up_by_handle() {
        const Range& range = live_[below(live_.size())];
        const std::uint64_t offset = below(range.length + 64);
        const std::uint64_t bytes = 1 + below(range.length);
        const Resolution got = range.registration.resolve(ByteCount{offset}, ByteCount{bytes});
        if (offset > range.length || bytes > range.length - offset) {
            ASSERT_EQ(got.refusal, Refusal::out_of_bounds);
            saw(handle_out_of_bounds);
            return;
        }
        ASSERT_TRUE(got);
        ASSERT_EQ(got.extent, first_extent(range.base + offset, bytes));
        saw(resolved_by_handle);
    }

    void step() {
        const std::uint64_t action = below(1000);
        if (action < 14 && live_.size() < 36) {
            add_host();
        } else if (action < 22 && live_.size() < 36) {
            add_device();
        } else if (action < 29) {
            add_what_is_refused();
        } else if (action < 50 && !live_.empty()) {
            remove();
        } else if (action < 62) {
            announce_or_reclaim();
        } else if (action < 120) {
            look_up_all();
        } else if (action < 300 && !live_.empty()) {
            look_up_by_handle();
        } else {
            look_up();
        }
    }

    std::mt19937_64 random_{20261130};
    std::map<std::uint64_t, std::uint64_t> device_bus_; ///< page of a device pointer to its bus address
    std::vector<std::unique_ptr<Device>> devices_;
    std::shared_ptr<PhysicalSpace> space_ = std::make_shared<PhysicalSpace>();
    std::shared_ptr<Registry> registry_ = Registry::create(os::real_system(), space_).value();
    Reader reader_ = registry_->attach();
    std::vector<Range> live_; ///< oldest first
    std::size_t waiting_ = 0; ///< unregistered since the reader last announced
    std::array<std::uint64_t, outcomes> seen_{};
};

TEST_F(RegistryModel, AMillionOperationsAgree) {
    for (const Manner manner : {Manner::exact, Manner::whole_object, Manner::suballocated}) {
        devices_.push_back(std::make_unique<Device>(manner, device_bus_));
    }
    constexpr int operations = 1'000'000;
    for (int i = 0; i < operations; ++i) {
        step();
        if (HasFatalFailure()) {
            FAIL() << "at operation " << i;
        }
    }
    fmt::print("{} operations:\n", operations);
    for (std::size_t i = 0; i < outcomes; ++i) {
        fmt::print("  {:>7} {}\n", seen_[i], names[i]);
        EXPECT_GE(seen_[i], 1000U) << names[i] << ": the mix leaves it untried";
    }
    live_.clear();
    reader_.announce(reader_.epoch());
    EXPECT_EQ(registry_->reclaim(), 0U);
    EXPECT_EQ(space_->mapped(), 0U);
    EXPECT_EQ(registry_->index_memory(), ByteCount{});
    for (const auto& device : devices_) {
        EXPECT_EQ(device->exports().live_count(), 0U) << "exports go with the last registration";
    }
}

} // namespace
} // namespace upcie::memory
