// SPDX-License-Identifier: BSD-3-Clause
// A real drive and memory of a "GPU": the tests' vendor libraries over udmabufs, whose pages the importer finds.
// Nothing translates on this path, so that every address is the library's to get right.
//   gpu_memory_check DEVICE PATH GPU SEED:FIRST:COUNT
// GPU is a name of gpu::Name; the library and its manner are the environment's (UPCIE_CUDA_LIBRARY, UPCIE_HIP_LIBRARY,
// UPCIE_FAKE_GPU_MANNER). Prints a line a check; the status is 1 when one failed.
#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include <upcie/gpu/open.hpp>
#include <upcie/memory/device_exports.hpp>

#include "drive.hpp"

using namespace upcie;
using namespace upcie::vm;
using namespace upcie::literals;

namespace {

constexpr std::uint64_t page = 4096;
constexpr std::byte untouched{0xa5};

template <class T>
T need(Result<T> result, std::string_view what) {
    if (!expect(result, what)) {
        std::exit(1);
    }
    return std::move(*result);
}

struct Bench {
    Drive drive;
    std::shared_ptr<gpu::Runtime> runtime;
    memory::DeviceExports::Importer importer;
    std::shared_ptr<memory::DeviceExports> exports;
    Stamped stamps;

    [[nodiscard]] std::vector<std::byte> fetch(DevicePointer from, ByteCount length) const {
        std::vector<std::byte> bytes(length.value());
        need(runtime->copy_to_host(bytes.data(), from, length).map([] { return true; }), "the GPU's memory is copied");
        return bytes;
    }
    /// Fills an allocation, page by page in an order of chance: its pages are then nowhere near each other's order.
    void scatter(DevicePointer base, ByteCount size) const {
        const std::vector<std::byte> fill(page, untouched);
        std::vector<std::uint64_t> pages((size.value() + page - 1) / page);
        std::iota(pages.begin(), pages.end(), std::uint64_t{0});
        std::shuffle(pages.begin(), pages.end(), std::mt19937_64{4711});
        for (const std::uint64_t one : pages) {
            const ByteCount part{std::min(page, size.value() - one * page)};
            if (!runtime->copy_to_device(base + ByteCount{one * page}, fill.data(), part)) {
                expect(false, "the GPU's memory is filled");
                return;
            }
        }
    }
    /// The first of `count` blocks that are not as stamped, in bytes on the host.
    [[nodiscard]] std::string judge_bytes(std::span<const std::byte> bytes, std::uint32_t first_index,
                                          std::uint32_t count) const {
        const std::size_t block = std::size_t{1} << drive.format.block_shift;
        for (std::uint32_t i = 0; i < count; ++i) {
            const auto expected = stamps.stamp(drive.format, first_index + i);
            const auto finding = cli::judge_block(bytes.subspan(i * block, block), expected);
            if (finding.verdict != cli::BlockVerdict::good) {
                return finding.describe(expected);
            }
        }
        return {};
    }
    [[nodiscard]] static bool is_untouched(std::span<const std::byte> bytes) {
        return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == untouched; });
    }
};

/// Reads stamps to `delta` bytes into an allocation of `size`, and looks at every byte of it.
void check_read(Bench& bench, ByteCount size, ByteCount delta, std::uint32_t blocks) {
    const std::string what =
        fmt::format("{} blocks to {} bytes into an allocation of {}", blocks, delta.value(), size.value());
    const DevicePointer base = need(bench.runtime->allocate(size), "the GPU allocates");
    bench.scatter(base, size);
    {
        const ByteCount bytes{std::uint64_t{blocks} << bench.drive.format.block_shift};
        auto registration =
            need(bench.drive.registry->register_device_memory(*bench.exports, base + delta, bytes), "it is registered");
        auto queue = need(bench.drive.queue(8), "a queue");
        const auto submitted = queue.read(bench.drive.format, Lba{bench.stamps.first}, blocks, registration.data(), 1);
        if (expect(static_cast<bool>(submitted), what + " are asked for")) {
            queue.ring();
            std::string fault;
            finish(queue, 1, fault);
            expect(fault.empty(), what + " came", fault);
            const auto all = bench.fetch(base, size);
            const std::span bytes_there{all};
            const std::string bad = bench.judge_bytes(bytes_there.subspan(delta.value(), bytes.value()), 0, blocks);
            expect(bad.empty(), what + " are where they belong", bad);
            expect(Bench::is_untouched(bytes_there.first(delta.value())) &&
                       Bench::is_untouched(bytes_there.subspan(delta.value() + bytes.value())),
                   what + ": nothing beside them was touched");
        }
    }
    expect(bench.runtime->free(base), "the GPU frees");
}

/// Many small allocations, registered from several threads, a block to each.
void check_many(Bench& bench) {
    constexpr std::uint32_t count = 96;
    const ByteCount block{std::uint64_t{1} << bench.drive.format.block_shift};
    std::vector<DevicePointer> bases;
    std::vector<memory::Registration> registrations(count);
    for (std::uint32_t i = 0; i < count; ++i) {
        bases.push_back(need(bench.runtime->allocate(block + ByteCount{(i % 7) * 1000}), "a small allocation"));
        bench.scatter(bases.back(), block);
    }
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            for (std::uint32_t i = t; i < count; i += 4) {
                auto one = bench.drive.registry->register_device_memory(*bench.exports, bases[i], block);
                if (one) {
                    registrations[i] = std::move(*one);
                }
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    auto queue = need(bench.drive.queue(count + 1), "a queue");
    std::uint32_t asked = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        const bool sent = registrations[i] &&
                          queue.read(bench.drive.format, Lba{bench.stamps.first + i}, 1, registrations[i].data(), i);
        asked += sent ? 1U : 0U;
    }
    queue.ring();
    expect(asked == count, "four threads register 96 small allocations", fmt::format("{} of them", asked));
    std::string fault;
    finish(queue, asked, fault);
    expect(fault.empty(), "a block is read to each", fault);
    std::uint32_t bad = 0;
    std::string first;
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::string wrong = bench.judge_bytes(bench.fetch(bases[i], block), i, 1);
        first = !wrong.empty() && bad++ == 0 ? wrong : first;
    }
    expect(bad == 0, "each holds its own block", first);
    registrations.clear();
    for (const DevicePointer base : bases) {
        static_cast<void>(bench.runtime->free(base));
    }
}

/// A way to the address of an offset that takes the first segment's for the whole, and where it leads.
struct Wrong {
    ByteCount meant;   ///< offset in the allocation that was meant
    ByteCount reached; ///< offset of what the address really is, inside the same allocation
    DmaAddress address;
};

/// Such an address that lies in the allocation itself, so that using it destroys nothing else.
std::optional<Wrong> find_wrong(const dmabuf::ScatterList& whole, DmaAddress first, ByteCount start) {
    for (std::uint64_t offset = 0; start.value() + offset + page <= whole.total().value(); offset += page) {
        const DmaAddress naive = first + ByteCount{offset};
        const ByteCount meant = start + ByteCount{offset};
        for (const auto& run : whole.runs()) {
            const std::uint64_t from = run.extent.address.value();
            if (naive.value() >= from && naive.value() - from + page <= run.extent.length.value()) {
                const ByteCount reached = run.offset + ByteCount{naive.value() - from};
                if (reached != meant) {
                    return Wrong{meant, reached, naive};
                }
            }
        }
    }
    return std::nullopt;
}

/// What this library is there to prevent: the same page asked for by the first segment's address lands elsewhere.
void check_naive(Bench& bench) {
    constexpr ByteCount size = 4_MiB;
    constexpr ByteCount start = 64_KiB;
    const DevicePointer base = need(bench.runtime->allocate(size), "the GPU allocates");
    bench.scatter(base, size);
    const auto whole = need(bench.exports->export_at(base), "it is exported and imported");
    const auto part = need(bench.runtime->export_range(base + start, 1_MiB), "a part of it is exported by itself");
    const auto part_list = need(bench.importer(part), "the part is imported").bus;
    fmt::print("     an allocation of {} bytes in {} runs; {} bytes asked of it from {} on, {} described\n",
               size.value(), whole->bus.runs().size(), (1_MiB).value(), start.value(), part_list.total().value());
    const auto wrong = find_wrong(whole->bus, part_list.runs().front().extent.address, start);
    if (!expect(wrong.has_value(), "the first segment's address plus an offset is another page somewhere")) {
        return;
    }
    const auto blocks = static_cast<std::uint32_t>(page >> bench.drive.format.block_shift);
    auto queue = need(bench.drive.queue(8), "a queue");
    const auto submitted = queue.read(bench.drive.format, Lba{bench.stamps.first}, blocks,
                                      iommu::Extent{wrong->address, ByteCount{page}}, 1);
    queue.ring();
    std::string fault;
    finish(queue, submitted ? 1 : 0, fault);
    expect(submitted && fault.empty(), "the drive reports success all the same", fault);
    const auto all = bench.fetch(base, size);
    const std::span bytes{all};
    const std::string there = bench.judge_bytes(bytes.subspan(wrong->reached.value(), page), 0, blocks);
    expect(Bench::is_untouched(bytes.subspan(wrong->meant.value(), page)) && there.empty(),
           fmt::format("the data meant for offset {} lie at offset {}", wrong->meant.value(), wrong->reached.value()),
           there);
    // And the library's own way to the very same page.
    auto registration =
        need(bench.drive.registry->register_device_memory(*bench.exports, base + wrong->meant, ByteCount{page}),
             "the page is registered");
    const auto right = queue.read(bench.drive.format, Lba{bench.stamps.first}, blocks, registration.data(), 2);
    queue.ring();
    finish(queue, right ? 1 : 0, fault);
    const std::string bad = bench.judge_bytes(bench.fetch(base + wrong->meant, ByteCount{page}), 0, blocks);
    expect(right && fault.empty() && bad.empty(), "by the registry they lie where they were meant", fault + bad);
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 5) {
        fmt::print(stderr, "usage: gpu_memory_check DEVICE PATH GPU SEED:FIRST:COUNT\n");
        return 2;
    }
    Bench bench{need(Drive::open(argv[1], argv[2], 1), "the drive opens"),
                need(gpu::open(host(), need(gpu::Name::parse(argv[3]), "a GPU's name")), "the GPU opens"),
                {},
                nullptr,
                Stamped{argv[4]}};
    bench.importer = need(importer_for(host(), *bench.drive.controller->function(), bench.runtime), "the importer");
    memory::DeviceExports::Options options;
    options.importer = bench.importer;
    options.refuse_system_memory = false; // udmabufs are
    bench.exports = std::make_shared<memory::DeviceExports>(bench.runtime, options);
    fmt::print("     {}\n", bench.runtime->describe());
    const std::uint32_t all = std::min<std::uint32_t>(bench.stamps.count, 1024);
    check_read(bench, 2_MiB, 0_B, all);
    check_read(bench, 3_MiB + 4_KiB, 1_MiB - 4_KiB, all);
    check_read(bench, 140_KiB, 12_KiB, 100);
    check_read(bench, 700_KiB + 512_B, 4_KiB + 512_B, 1); // inside a page
    check_read(bench, 5000_B, 0_B, 1);
    check_many(bench);
    check_naive(bench);
    return failures == 0 ? 0 : 1;
}
