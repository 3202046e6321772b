// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <upcie/gpu/flavour.hpp>
#include <upcie/gpu/stub.hpp>
#include <upcie/memory/device_exports.hpp>
#include <upcie/memory/registry.hpp>
#include <upcie/os/system.hpp>
#include <upcie/sim/function.hpp>

namespace upcie::gpu {

using namespace upcie::literals;
using memory::DeviceExports;
using stub::Manner;
using stub::Stub;

/// A device in one manner and a controller on the same bus.
struct Bench {
    explicit Bench(const stub::Options& wanted, const char* sim = "sim:size=64M,mdts=9", bool importing = true,
                   bool refuse_system_memory = true) {
        stub::Options options = wanted;
        options.udmabuf_node.clear();
        device = Stub::create(os::real_system(), options).value();
        runtime = std::make_shared<FlavourRuntime<Stub>>(*device);
        function = sim::open_function(sim).value();
        registry = memory::Registry::create(os::real_system(), function->address_space()).value();
        DeviceExports::Options how;
        how.refuse_system_memory = refuse_system_memory;
        if (importing) {
            how.importer = [this](const Export& exported) -> Result<DeviceExports::Import> {
                ++imports;
                auto list = device->scatter_list(exported);
                if (!list) {
                    return tl::unexpected{list.error()};
                }
                auto same = std::make_shared<Export>(
                    Export{exported.fd.duplicate().value(), exported.file_offset, exported.size, exported.start});
                return DeviceExports::Import{std::move(*list), nullptr, [this, same]() -> Result<bool> {
                                                 const auto now = device->scatter_list(*same);
                                                 return !now && now.error().is(ESTALE);
                                             }};
            };
        }
        exports = std::make_shared<DeviceExports>(runtime, how);
    }
    Result<memory::Registration> add(DevicePointer start, ByteCount length) {
        return registry->register_device_memory(*exports, start, length);
    }
    /// What the bus has at `address`, read as the controller does.
    std::uint64_t bus_read(DmaAddress address) const {
        std::uint64_t value = 0;
        const auto& space = static_cast<const sim::AddressSpace&>(*function->address_space());
        const auto fault = space.read(address, std::as_writable_bytes(std::span{&value, 1}));
        EXPECT_FALSE(fault) << fault->reason;
        return value;
    }

    std::optional<Stub> device;
    std::shared_ptr<FlavourRuntime<Stub>> runtime;
    std::shared_ptr<pci::Function> function;
    std::shared_ptr<memory::Registry> registry;
    std::shared_ptr<DeviceExports> exports;
    unsigned imports = 0;
};

inline stub::Options in_manner(Manner manner, std::vector<ByteCount> runs = {}) {
    stub::Options options;
    options.manner = manner;
    options.runs = std::move(runs);
    return options;
}

constexpr const char* raw_bus = "sim:size=64M,mdts=9,scatter=1"; // nothing translates: bus addresses count

/// Every eighth byte of an allocation says where it is.
inline void number(Stub& device, DevicePointer base, ByteCount size) {
    std::vector<std::uint64_t> words(size.value() / 8);
    std::iota(words.begin(), words.end(), base.value());
    ASSERT_TRUE(device.copy_to_device(base, words.data(), ByteCount{words.size() * 8}));
}

} // namespace upcie::gpu
