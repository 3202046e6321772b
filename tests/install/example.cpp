// Reads one block of a drive into memory and writes it to standard output: example DEVICE LBA
#include <cstdio>
#include <cstdlib>
#include <upcie/memory/registry.hpp>
#include <upcie/nvme/namespace.hpp>
#include <upcie/open.hpp>

using namespace upcie;

int main(int argc, char** argv) try {
    if (argc != 3) {
        return 2;
    }
    os::System& system = os::real_system();
    std::shared_ptr<pci::Function> function = open_function(system, argv[1]).value();
    auto controller = nvme::Controller::open(system, function).value();
    auto drive = nvme::Namespace::open(controller, Nsid{1}).value();
    auto registry = memory::Registry::create(system, controller->address_space()).value();
    auto buffer = memory::Buffer::allocate(system, ByteCount{drive.block_size()}).value();
    auto registration = registry->register_buffer(buffer).value();
    nvme::QueueOptions options;
    options.registry = registry;
    auto queue = controller->create_queue_pair(options).value();
    if (auto read = drive.read(queue, Lba{std::strtoull(argv[2], nullptr, 0)}, 1, buffer.data()); !read) {
        throw tl::bad_expected_access<Error>{read.error()};
    }
    std::fwrite(buffer.data(), drive.block_size(), 1, stdout);
} catch (const tl::bad_expected_access<Error>& failed) {
    std::fprintf(stderr, "%s\n", failed.error().message().c_str());
    return 1;
}
