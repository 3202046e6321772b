// SPDX-License-Identifier: BSD-3-Clause
//
// What one I/O costs, from a pointer to its completion: bench_io CASE COUNT runs COUNT I/Os and nothing is timed.
// instructions.sh runs it under callgrind with N and 2N; the difference is free of the set-up.
//
// The controller is in this thread and as small as one can be: it reads the doorbell and each entry's CID and PRP entry
// 1 and writes a completion entry. Everything else is the library's: translation of a pointer drawn at random from
// 10,000 registered buffers, bounds checks, PRPs, deadlines, CID retirement, one doorbell a batch on either ring.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <sys/mman.h>

#include <upcie/gpu/flavour.hpp>
#include <upcie/gpu/stub.hpp>
#include <upcie/memory/device_exports.hpp>
#include <upcie/memory/registry.hpp>
#include <upcie/nvme/queue_pair.hpp>
#include <upcie/os/system.hpp>

namespace {

using namespace upcie;

constexpr std::uint32_t entries = 64;

/// Hands out addresses in one run a mapping, as an IOMMU does, or in runs that do not meet, as device memory has them.
class BenchSpace final : public iommu::AddressSpace {
  public:
    explicit BenchSpace(std::uint64_t run) : run_{run} {}
    iommu::AddressSpaceKind kind() const noexcept override { return iommu::AddressSpaceKind::simulated; }
    std::string describe() const override { return "bench"; }
    bool translating() const noexcept override { return true; }
    Result<std::vector<iommu::IovaRange>> iova_ranges() override { return std::vector<iommu::IovaRange>{}; }
    ByteCount granule() const noexcept override { return ByteCount{4096}; }

  protected:
    Result<Mapped> do_map_memory(void*, ByteCount length, iommu::Access) override {
        Mapped mapped{next_, {}};
        const std::uint64_t run = run_ == 0 ? length.value() : run_;
        for (std::uint64_t done = 0; done < length.value(); done += run) {
            mapped.extents.push_back({DmaAddress{next_}, ByteCount{run}});
            next_ += run + (run_ == 0 ? 0 : 4096);
        }
        return mapped;
    }
    Result<Mapped> do_map_file(int, ByteCount, ByteCount length, iommu::Access access) override {
        return do_map_memory(nullptr, length, access);
    }
    Result<void> do_unmap(std::uint64_t, ByteCount) override { return {}; }

  private:
    std::uint64_t run_;
    std::uint64_t next_ = 1U << 20;
};

class NoOwner final : public nvme::QueueOwner {
  public:
    void release(Qid, std::uint32_t, std::unique_ptr<nvme::QueueResources>) noexcept override {}
    Result<std::uint32_t> recreate(Qid, const nvme::QueueResources&, std::uint32_t) override { return 0U; }
};

/// The other side of the rings.
struct Controller {
    const nvme::Command* submission;
    nvme::CompletionEntry* completion;
    const volatile std::uint32_t* doorbell;
    std::uint32_t position = 0; ///< in both rings: every command completes in order
    std::uint32_t phase = 1U << 16;
    std::uint64_t seen = 0;

    void run() noexcept {
        const std::uint32_t until = __atomic_load_n(doorbell, __ATOMIC_ACQUIRE);
        if (until < position) {
            complete(entries);
            position = 0;
            phase ^= 1U << 16;
        }
        complete(until);
    }

  private:
    void complete(std::uint32_t until) noexcept {
        for (std::uint32_t i = position; i < until; ++i) {
            seen += submission[i].prp1;
            __atomic_store_n(&completion[i].cid_phase_status, submission[i].cid | phase, __ATOMIC_RELEASE);
        }
        position = until;
    }
};

template <class T>
T* pages(std::size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        std::abort();
    }
    return static_cast<T*>(memory);
}

/// The buffers of a case, one behind the other, each registered by itself.
struct Buffers {
    std::byte* data = nullptr;
    std::vector<memory::Registration> registrations;
    std::shared_ptr<memory::DeviceExports> exports; ///< of device memory

    static Result<Buffers> host(memory::Registry& registry, std::size_t bytes, std::size_t count) {
        Buffers buffers;
        buffers.data = pages<std::byte>(count * bytes);
        for (std::size_t i = 0; i < count; ++i) {
            auto one = registry.register_memory(buffers.data + i * bytes, ByteCount{bytes});
            if (!one) {
                return tl::unexpected{std::move(one.error())};
            }
            buffers.registrations.push_back(std::move(*one));
        }
        return buffers;
    }
    /// In one allocation of a stub GPU, as a pool has them.
    static Result<Buffers> device(memory::Registry& registry, std::size_t bytes, std::size_t count) {
        gpu::stub::Options options;
        options.udmabuf_node.clear();
        auto stub = gpu::stub::Stub::create(os::real_system(), options);
        if (!stub) {
            return tl::unexpected{std::move(stub.error())};
        }
        const auto base = stub->allocate(ByteCount{count * bytes});
        if (!base) {
            return tl::unexpected{base.error()};
        }
        Buffers buffers;
        buffers.data = reinterpret_cast<std::byte*>(base->value());
        buffers.exports = std::make_shared<memory::DeviceExports>(
            std::make_shared<gpu::FlavourRuntime<gpu::stub::Stub>>(*stub), memory::DeviceExports::Options{});
        for (std::size_t i = 0; i < count; ++i) {
            auto one =
                registry.register_device_memory(*buffers.exports, *base + ByteCount{i * bytes}, ByteCount{bytes});
            if (!one) {
                return tl::unexpected{std::move(one.error())};
            }
            buffers.registrations.push_back(std::move(*one));
        }
        return buffers;
    }
};

enum class Where { host, device };

/// One case. Size and depth are constants, as they are where an application reads pages of one size.
template <std::uint32_t bytes, std::uint32_t depth, Where where = Where::host, std::uint32_t run_bytes = 0,
          std::size_t buffer_count = 10'000>
int run(const char* name, std::uint64_t count) {
    static constexpr nvme::BlockFormat format{Nsid{1}, 12};
    auto registry = memory::Registry::create(os::real_system(), std::make_shared<BenchSpace>(run_bytes));
    if (!registry) {
        fmt::print(stderr, "{}\n", registry.error().message());
        return 1;
    }
    const auto buffers = where == Where::host ? Buffers::host(**registry, bytes, buffer_count)
                                              : Buffers::device(**registry, bytes, buffer_count);
    if (!buffers) {
        fmt::print(stderr, "{}\n", buffers.error().message());
        return 1;
    }
    std::vector<std::byte*> pointers;
    for (std::size_t i = 0; i < buffer_count; ++i) {
        pointers.push_back(buffers->data + i * bytes);
    }

    volatile std::uint32_t doorbells[2] = {0, 0};
    nvme::QueueSetup setup;
    setup.qid = Qid{1};
    setup.layout.submission = pages<nvme::Command>(entries * sizeof(nvme::Command));
    setup.layout.completion = pages<nvme::CompletionEntry>(entries * sizeof(nvme::CompletionEntry));
    setup.layout.submission_doorbell = &doorbells[0];
    setup.layout.completion_doorbell = &doorbells[1];
    setup.layout.prp_lists = pages<std::uint64_t>(entries * std::size_t{4096});
    setup.layout.prp_list_stride = 4096;
    setup.layout.entries = entries;
    setup.list_pages = 1;
    setup.max_transfer = ByteCount{1U << 20};
    setup.resources = std::make_unique<nvme::QueueResources>();
    for (std::uint32_t i = 0; i < entries; ++i) {
        setup.resources->list_addresses.push_back(0x4000'0000 + std::uint64_t{i} * 4096);
    }
    Controller controller{setup.layout.submission, setup.layout.completion, &doorbells[0]};
    setup.owner = std::make_shared<NoOwner>();
    nvme::QueuePair queue{std::move(setup)};
    if (auto attached = queue.attach(**registry); !attached) {
        fmt::print(stderr, "{}\n", attached.error().message());
        return 1;
    }

    std::uint32_t random = 12345;
    std::uint64_t submitted = 0;
    std::uint64_t cookies = 0;
    nvme::Completion completions[depth];
    while (submitted < count) {
        for (std::uint32_t i = 0; i < depth; ++i) {
            random = random * 1664525U + 1013904223U;
            const std::size_t pick = (std::uint64_t{random} * buffer_count) >> 32; // scaled, without a division
            if (!queue.read(format, Lba{submitted}, bytes >> 12, pointers[pick], submitted)) [[unlikely]] {
                fmt::print(stderr, "bench_io: refused\n");
                return 1;
            }
            ++submitted;
        }
        queue.ring();
        controller.run();
        const std::size_t ended = queue.poll(completions);
        for (std::size_t i = 0; i < ended; ++i) {
            if (!completions[i].ok()) [[unlikely]] {
                fmt::print(stderr, "bench_io: failed\n");
                return 1;
            }
            cookies += completions[i].cookie;
        }
        if (ended != depth) [[unlikely]] {
            fmt::print(stderr, "bench_io: {} of {} completed\n", ended, depth);
            return 1;
        }
    }
    // Both sums prove that the work was done: every cookie came back once.
    if (cookies != submitted * (submitted - 1) / 2) {
        fmt::print(stderr, "bench_io: cookies do not add up\n");
        return 1;
    }
    fmt::print("{} {} ios, prp sum {:#x}\n", name, submitted, controller.seen);
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    struct Case {
        std::string_view name;
        int (*run)(const char*, std::uint64_t);
    };
    constexpr Case cases[] = {
        {"read-4k-qd1", run<4096, 1>},
        {"read-4k-qd32", run<4096, 32>},
        {"read-128k-qd1", run<131072, 1>},
        {"read-128k-qd32", run<131072, 32>},
        {"read-4k-device-qd32", run<4096, 32, Where::device>},
        {"read-128k-device-qd32", run<131072, 32, Where::device>},
        {"read-1m-64k-runs-qd32", run<1U << 20, 32, Where::host, 65536, 1000>},
    };
    for (const Case& one : cases) {
        if (argc == 3 && one.name == argv[1]) {
            return one.run(argv[1], std::strtoull(argv[2], nullptr, 10));
        }
    }
    fmt::print(stderr, "usage: bench_io CASE COUNT, CASE one of:\n");
    for (const Case& one : cases) {
        fmt::print(stderr, "  {}\n", one.name);
    }
    return 2;
}
