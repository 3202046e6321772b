// SPDX-License-Identifier: BSD-3-Clause
// Registrations that overlap, enclose, abut and go again in any order, against a list that is searched from its end.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include <fuzzer/FuzzedDataProvider.h>

#include <upcie/memory/registry.hpp>
#include <upcie/os/system.hpp>

#include "support/scattered_space.hpp"

namespace {

using upcie::ByteCount;

/// The last 4 MiB of the user's half, across the border of two leaves of the index: never touched, so made up.
constexpr std::uint64_t low = 0x7fff'ffc0'0000;
constexpr std::uint64_t span = 0x40'0000;

void require(bool holds) {
    if (!holds) {
        std::abort();
    }
}

struct Model {
    std::uint64_t start;
    std::uint64_t length;
    upcie::memory::Registration registration;
};

/// Kept from input to input, since making one takes 75 ms under ASan; each input ends with nothing registered.
struct Bench {
    std::shared_ptr<upcie::test::ScatteredSpace> space;
    std::shared_ptr<upcie::memory::Registry> registry;
};
const Bench& bench_of(std::size_t pages_per_run) {
    static std::array<Bench, 4> all;
    Bench& one = all.at(pages_per_run);
    if (!one.registry) {
        one.space = std::make_shared<upcie::test::ScatteredSpace>(pages_per_run);
        one.registry = upcie::memory::Registry::create(upcie::os::real_system(), one.space).value();
    }
    return one;
}

/// The newest registration that holds all of the range.
const Model* holder(const std::vector<Model>& live, std::uint64_t start, std::uint64_t bytes) {
    for (auto one = live.rbegin(); one != live.rend(); ++one) {
        if (start >= one->start && bytes <= one->length && start - one->start <= one->length - bytes) {
            return &*one;
        }
    }
    return nullptr;
}

std::uint64_t place(FuzzedDataProvider& input) {
    const std::uint64_t at = low + input.ConsumeIntegralInRange<std::uint64_t>(0, span - 1);
    return input.ConsumeBool() ? at & ~std::uint64_t{0xfff} : at;
}

std::uint64_t extent(FuzzedDataProvider& input) {
    return input.ConsumeIntegralInRange(0, 7) != 0 ? input.ConsumeIntegralInRange<std::uint64_t>(0, 16384)
                                                   : input.ConsumeIntegralInRange<std::uint64_t>(0, span);
}

void compare(const std::vector<Model>& live, const upcie::memory::Reader& reader, std::uint64_t start,
             std::uint64_t bytes) {
    const auto got = reader.resolve(reinterpret_cast<const void*>(start), ByteCount{bytes});
    const Model* const expected = bytes == 0 ? nullptr : holder(live, start, bytes);
    require(static_cast<bool>(got) == (expected != nullptr));
    if (expected == nullptr) {
        return;
    }
    // The handle answers by another way, without the index.
    const auto same = expected->registration.resolve(ByteCount{start - expected->start}, ByteCount{bytes});
    require(same && same.extent.address == got.extent.address && same.extent.length == got.extent.length);
    require(got.extent.length.value() > 0 && got.extent.length.value() <= bytes);
    if (bytes > 65536) {
        return; // walking long ranges is what would take the time
    }
    const auto all = expected->registration.extents(ByteCount{start - expected->start}, ByteCount{bytes});
    require(all && !all->empty() && all->front().address == got.extent.address);
    std::uint64_t sum = 0;
    for (const auto& one : *all) {
        sum += one.length.value();
    }
    require(sum == bytes);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzedDataProvider input{data, size};
    const Bench& bench = bench_of(input.ConsumeIntegralInRange<std::size_t>(0, 3));
    const auto& space = bench.space;
    const auto& registry = bench.registry;
    auto reader = registry->attach();
    std::vector<Model> live;
    for (int operations = 0; operations < 100 && input.remaining_bytes() > 0; ++operations) {
        const std::uint64_t start = place(input);
        const std::uint64_t length = extent(input);
        switch (input.ConsumeIntegralInRange(0, 3)) {
        case 0: {
            // The index's pages are what takes time, so that many long ones are kept out.
            if (live.size() >= 16) {
                break;
            }
            auto made = registry->register_memory(reinterpret_cast<void*>(start), ByteCount{length});
            require(static_cast<bool>(made) == (length != 0));
            if (made) {
                live.push_back({start, length, std::move(*made)});
            }
            break;
        }
        case 1:
            if (!live.empty()) {
                live.erase(live.begin() +
                           static_cast<std::ptrdiff_t>(input.ConsumeIntegralInRange<std::size_t>(0, live.size() - 1)));
            }
            break;
        case 2:
            reader.announce(reader.epoch());
            break;
        default:
            break;
        }
        compare(live, reader, start, length);
        if (!live.empty()) {
            const Model& one = live[length % live.size()];
            compare(live, reader, one.start, one.length);
            compare(live, reader, one.start + one.length - 1, 1);
            compare(live, reader, one.start + one.length, 1);
            compare(live, reader, one.start - 1, 1);
        }
    }
    live.clear();
    reader.announce(reader.epoch());
    require(registry->reclaim() == 0);
    require(registry->live_count() == 0);
    require(space->mapped() == 0);
    return 0;
}
