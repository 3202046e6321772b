// SPDX-License-Identifier: BSD-3-Clause
//
// What translation costs by itself: bench_translate CASE COUNT does COUNT of it, and instructions.sh counts. Pointers
// and handles are drawn at random among 10,000 registrations; the draw-… cases only draw, and are taken off.
// bench_translate --time prints nanoseconds of the same, for information: they change with the machine and its load.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <upcie/dmabuf/scatter_list.hpp>
#include <upcie/memory/registry.hpp>
#include <upcie/os/system.hpp>

namespace {

using namespace upcie;
using namespace upcie::literals;

constexpr std::size_t registration_count = 10'000;

/// Addresses as an importer names them, and one run for host memory.
class BenchSpace final : public iommu::AddressSpace {
  public:
    iommu::AddressSpaceKind kind() const noexcept override { return iommu::AddressSpaceKind::simulated; }
    std::string describe() const override { return "bench"; }
    bool translating() const noexcept override { return false; }
    Result<std::vector<iommu::IovaRange>> iova_ranges() override { return std::vector<iommu::IovaRange>{}; }
    ByteCount granule() const noexcept override { return 4_KiB; }

  protected:
    Result<Mapped> do_map_memory(void* start, ByteCount length, iommu::Access) override {
        const auto address = reinterpret_cast<std::uintptr_t>(start);
        return Mapped{address, {{DmaAddress{address ^ 0x5000'0000'0000}, length}}};
    }
    Result<Mapped> do_map_file(int, ByteCount, ByteCount length, iommu::Access access) override {
        return do_map_memory(nullptr, length, access);
    }
    Result<void> do_unmap(std::uint64_t, ByteCount) override { return {}; }
};

template <class T>
T must(Result<T> result) {
    if (!result) {
        fmt::print(stderr, "{}\n", result.error().message());
        std::exit(1);
    }
    return std::move(*result);
}

std::shared_ptr<memory::Registry> make_registry() {
    return must(memory::Registry::create(os::real_system(), std::make_shared<BenchSpace>()));
}

/// The nth made-up buffer: 64 KiB, not next to its neighbours.
std::byte* buffer(std::size_t index) {
    return reinterpret_cast<std::byte*>(0x10'0000'0000 + index * 0x20000);
}

std::vector<memory::Registration> fill(memory::Registry& registry) {
    std::vector<memory::Registration> made;
    for (std::size_t i = 0; i < registration_count; ++i) {
        made.push_back(must(registry.register_memory(buffer(i), 64_KiB)));
    }
    return made;
}

/// A cheap series that visits all of them.
class Draw {
  public:
    std::size_t next() {
        state_ = state_ * 1664525U + 1013904223U;
        return static_cast<std::size_t>((std::uint64_t{state_} * registration_count) >> 32);
    }
    [[nodiscard]] std::uint32_t offset() const { return state_ & 0xf000; }

  private:
    std::uint32_t state_ = 12345;
};

std::uint64_t resolve_handle(std::uint64_t count) {
    const auto registry = make_registry();
    const auto registrations = fill(*registry);
    Draw draw;
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
        const auto& one = registrations[draw.next()];
        const auto resolution = one.resolve(ByteCount{draw.offset()}, 4_KiB);
        if (!resolution) {
            std::abort();
        }
        sum += resolution.extent.address.value();
    }
    return sum;
}

std::uint64_t draw_handle(std::uint64_t count) {
    const auto registry = make_registry();
    const auto registrations = fill(*registry);
    Draw draw;
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
        sum += reinterpret_cast<std::uintptr_t>(&registrations[draw.next()]) + draw.offset();
    }
    return sum;
}

std::uint64_t draw_pointer(std::uint64_t count) {
    const auto registry = make_registry();
    const auto registrations = fill(*registry);
    Draw draw;
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
        sum += reinterpret_cast<std::uintptr_t>(buffer(draw.next()) + draw.offset());
    }
    return sum;
}

std::uint64_t resolve_pointer(std::uint64_t count) {
    const auto registry = make_registry();
    const auto registrations = fill(*registry);
    const auto reader = registry->attach();
    Draw draw;
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
        const std::byte* const pointer = buffer(draw.next()) + draw.offset();
        const auto resolution = reader.resolve(pointer, 4_KiB);
        if (!resolution) {
            std::abort();
        }
        sum += resolution.extent.address.value();
    }
    return sum;
}

constexpr std::uint64_t whole = 1 << 20; // segments of 64 KiB in 64 GiB

/// 64 GiB as an exporter lists them, sixteen segments to a run.
std::vector<dmabuf::Segment> list_segments() {
    std::vector<dmabuf::Segment> segments;
    for (std::uint64_t i = 0; i < whole; ++i) {
        segments.push_back(
            {DmaAddress{0x6000'0000'0000 + i * 65536 + i / 16 * 65536}, 64_KiB, dmabuf::SegmentKind::bar});
    }
    return segments;
}

/// COUNT segments looked at and no more.
std::uint64_t read_segments(std::uint64_t count) {
    const auto segments = list_segments();
    std::uint64_t sum = 0;
    for (std::uint64_t done = 0; done < count; done += whole) {
        for (const auto& segment : segments) {
            sum += segment.address.value() ^ segment.length.value() ^ static_cast<std::uint64_t>(segment.kind);
        }
    }
    return sum;
}

/// COUNT segments checked, made runs of and registered, in pieces of 64 GiB.
std::uint64_t register_segments(std::uint64_t count) {
    const auto registry = make_registry();
    const auto segments = list_segments();
    std::uint64_t sum = 0;
    for (std::uint64_t done = 0; done < count; done += whole) {
        const auto list = must(dmabuf::ScatterList::from_segments(segments, "bench"));
        auto mapping = must(registry->address_space()->map_dmabuf(-1, 0_B, list.total(), list));
        const auto one =
            must(registry->register_mapping(reinterpret_cast<void*>(0x10'0000'0000), list.total(), std::move(mapping)));
        sum += one.resolve(list.total() - 1_B, 1_B).extent.address.value();
        if (list.runs().size() != whole / 16) {
            std::abort();
        }
    }
    return sum;
}

/// Nanoseconds of one, the best of several tries.
double nanoseconds(std::uint64_t (*run)(std::uint64_t)) {
    constexpr std::uint64_t count = 2'000'000;
    const auto took = [run](std::uint64_t n) {
        const auto start = std::chrono::steady_clock::now();
        if (run(n) == 0) {
            std::abort();
        }
        return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
    };
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
        best = std::min(best, (took(2 * count) - took(count)) / count);
    }
    return best;
}

} // namespace

int main(int argc, char** argv) {
    struct Case {
        std::string_view name;
        std::uint64_t (*run)(std::uint64_t);
    };
    constexpr Case cases[] = {
        {"resolve-handle", resolve_handle}, {"resolve-pointer", resolve_pointer}, {"draw-handle", draw_handle},
        {"draw-pointer", draw_pointer},     {"register-64g", register_segments},  {"read-segments", read_segments},
    };
    for (const Case& one : cases) {
        if (argc == 3 && one.name == argv[1]) {
            fmt::print("{} sum {:#x}\n", one.name, one.run(std::strtoull(argv[2], nullptr, 10)));
            return 0;
        }
    }
    if (argc == 2 && std::string_view{argv[1]} == "--time") {
        fmt::print("resolve-handle-time {:.1f} ns\n", nanoseconds(resolve_handle) - nanoseconds(draw_handle));
        fmt::print("resolve-pointer-time {:.1f} ns\n", nanoseconds(resolve_pointer) - nanoseconds(draw_pointer));
        return 0;
    }
    fmt::print(stderr, "usage: bench_translate CASE COUNT, or --time, CASE one of:\n");
    for (const Case& one : cases) {
        fmt::print(stderr, "  {}\n", one.name);
    }
    return 2;
}
