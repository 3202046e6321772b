// SPDX-License-Identifier: BSD-3-Clause
// Loads a file's blocks from a drive into a GPU's memory, without the kernel's block layer and without a copy in the
// host's memory: load_to_gpu DEVICE GPU EXTENTS [COPY]
//
// EXTENTS is a text file with a line "LBA COUNT" for each piece of the file, in blocks of the drive;
// docs/device-memory.md shows how to get it from a file system. Each piece gets a buffer of its own. A background
// thread allocates and registers them, which is slow (a dma-buf export and an import each), while this one reads into
// those that are ready. With COPY, what the GPU then holds is written to that file.
#include <charconv>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <upcie/gpu/open.hpp>
#include <upcie/memory/registry.hpp>
#include <upcie/nvme/namespace.hpp>
#include <upcie/open.hpp>

using namespace upcie;

namespace {

/// A piece of the file and the GPU memory that it goes to.
struct Piece {
    std::uint64_t lba = 0;
    std::uint64_t blocks = 0;
    memory::Buffer buffer;
    memory::Registration registration; // declared after the buffer: gone before it
};

/// Pieces that are ready to be read into, in their order; an error ends them.
class Ready {
  public:
    void put(Result<Piece> piece) {
        const std::lock_guard lock{mutex_};
        pieces_.push_back(std::move(piece));
        changed_.notify_one();
    }
    Result<Piece> take() {
        std::unique_lock lock{mutex_};
        changed_.wait(lock, [&] { return !pieces_.empty(); });
        Result<Piece> piece = std::move(pieces_.front());
        pieces_.pop_front();
        return piece;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Result<Piece>> pieces_;
};

/// A decimal number and nothing else: a stream would take -5 for a very large one.
bool parse(const std::string& word, std::uint64_t& number) {
    const char* const end = word.data() + word.size();
    const auto [after, error] = std::from_chars(word.data(), end, number);
    return error == std::errc{} && after == end;
}

/// The pieces that a list has; none where something else is in it.
std::vector<std::pair<std::uint64_t, std::uint64_t>> read_extents(const char* path) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> extents;
    std::ifstream list{path};
    std::string first;
    std::string second;
    while (list >> first) {
        std::uint64_t lba = 0;
        std::uint64_t count = 0;
        if (!(list >> second) || !parse(first, lba) || !parse(second, count) || count == 0) {
            return {};
        }
        extents.emplace_back(lba, count);
    }
    return list.eof() ? extents : std::vector<std::pair<std::uint64_t, std::uint64_t>>{};
}

Result<Piece> prepare(const std::shared_ptr<memory::Registry>& registry,
                      const std::shared_ptr<memory::DeviceExports>& exports, std::uint64_t lba, std::uint64_t blocks,
                      std::uint32_t block_size) {
    auto buffer = memory::Buffer::allocate_on_device(exports, ByteCount{blocks * block_size});
    if (!buffer) {
        return tl::unexpected{buffer.error()};
    }
    auto registration = registry->register_buffer(*buffer);
    if (!registration) {
        return tl::unexpected{registration.error()};
    }
    return Piece{lba, blocks, std::move(*buffer), std::move(*registration)};
}

Result<void> read_piece(const nvme::Namespace& drive, nvme::QueuePair& queue, const Piece& piece) {
    const std::uint64_t most = queue.max_transfer().value() / drive.block_size();
    for (std::uint64_t done = 0; done < piece.blocks; done += most) {
        const auto part = static_cast<std::uint32_t>(std::min(most, piece.blocks - done));
        if (auto read = drive.read(queue, Lba{piece.lba + done}, part, piece.buffer.data() + done * drive.block_size());
            !read) {
            return read;
        }
    }
    return {};
}

void write_copy(gpu::Runtime& runtime, const std::vector<Piece>& pieces, const char* path) {
    std::ofstream out{path, std::ios::binary};
    for (const Piece& piece : pieces) {
        std::vector<char> bytes(piece.buffer.size().value());
        const DevicePointer from{reinterpret_cast<std::uintptr_t>(piece.buffer.data())};
        if (auto copied = runtime.copy_to_host(bytes.data(), from, piece.buffer.size()); !copied) {
            throw tl::bad_expected_access<Error>{copied.error()};
        }
        out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
    if (!out.flush()) {
        throw std::runtime_error{std::string{"could not write "} + path};
    }
}

} // namespace

int main(int argc, char** argv) try {
    if (argc < 4 || argc > 5) {
        std::fprintf(stderr, "usage: load_to_gpu DEVICE GPU EXTENTS [COPY]\n");
        return 2;
    }
    os::System& system = os::real_system();
    const auto extents = read_extents(argv[3]);
    if (extents.empty()) {
        std::fprintf(stderr, "%s: no lines of \"LBA COUNT\", or something else among them\n", argv[3]);
        return 2;
    }

    // The drive, a queue of it, and the GPU.
    const std::shared_ptr<pci::Function> function = open_function(system, argv[1]).value();
    const auto controller = nvme::Controller::open(system, function).value();
    const auto drive = nvme::Namespace::open(controller, Nsid{1}).value();
    for (const auto& [lba, blocks] : extents) {
        if (auto inside = drive.check_range("load", Lba{lba}, blocks); !inside) {
            throw tl::bad_expected_access<Error>{inside.error()};
        }
    }
    const auto registry = memory::Registry::create(system, controller->address_space()).value();
    nvme::QueueOptions queue_options;
    queue_options.registry = registry;
    auto queue = controller->create_queue_pair(queue_options).value();
    const auto runtime = gpu::open(system, gpu::Name::parse(argv[2]).value()).value();
    memory::DeviceExports::Options export_options;
    export_options.importer = importer_for(system, *function, runtime).value();
    const auto exports = std::make_shared<memory::DeviceExports>(runtime, export_options);

    // Registering runs ahead of reading: both may use the registry at the same time.
    Ready ready;
    std::jthread background{[&](const std::stop_token& stop) {
        for (const auto& [lba, blocks] : extents) {
            if (stop.stop_requested()) {
                return; // the other thread gave up
            }
            ready.put(prepare(registry, exports, lba, blocks, drive.block_size()));
        }
    }};
    std::vector<Piece> loaded;
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < extents.size(); ++i) {
        Piece piece = ready.take().value();
        if (auto read = read_piece(drive, queue, piece); !read) {
            throw tl::bad_expected_access<Error>{read.error()};
        }
        bytes += piece.buffer.size().value();
        loaded.push_back(std::move(piece));
    }
    if (argc == 5) {
        write_copy(*runtime, loaded, argv[4]);
    }
    std::printf("%llu bytes in %zu pieces are in the memory of %s\n", static_cast<unsigned long long>(bytes),
                loaded.size(), runtime->describe().c_str());
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
        throw std::runtime_error{"could not write to standard output"};
    }
    return 0;
} catch (const tl::bad_expected_access<Error>& failed) {
    std::fprintf(stderr, "%s\n", failed.error().message().c_str());
    return 1;
} catch (const std::exception& failed) {
    std::fprintf(stderr, "%s\n", failed.what());
    return 1;
}
