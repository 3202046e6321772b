// SPDX-License-Identifier: BSD-3-Clause
// What a program outside this tree looks like: reads one block of a drive into memory and writes it to standard output.
//   example DEVICE LBA
#include <cstdio>
#include <cstdlib>

#include <upcie/memory/registry.hpp>
#include <upcie/nvme/namespace.hpp>
#include <upcie/open.hpp>

using namespace upcie;

/// The value, or the end of the program with the reason.
template <class T>
T must(Result<T> result) {
    if (!result) {
        std::fprintf(stderr, "%s\n", result.error().message().c_str());
        std::exit(1);
    }
    return std::move(*result);
}

int main(int count, char** arguments) {
    if (count != 3) {
        return 2;
    }
    os::System& system = os::real_system();
    const std::shared_ptr<pci::Function> function = must(open_function(system, arguments[1]));
    const auto controller = must(nvme::Controller::open(system, function));
    const auto drive = must(nvme::Namespace::open(controller, Nsid{1}));
    const auto registry = must(memory::Registry::create(system, controller->address_space()));
    const auto buffer = must(memory::Buffer::allocate(system, ByteCount{drive.block_size()}));
    const auto registration = must(registry->register_buffer(buffer));
    nvme::QueueOptions options;
    options.registry = registry;
    auto queue = must(controller->create_queue_pair(options));
    if (auto read = drive.read(queue, Lba{std::strtoull(arguments[2], nullptr, 0)}, 1, buffer.data()); !read) {
        std::fprintf(stderr, "%s\n", read.error().message().c_str());
        return 1;
    }
    return std::fwrite(buffer.data(), drive.block_size(), 1, stdout) == 1 ? 0 : 1;
}
