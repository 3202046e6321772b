#include <cstdio>
#include <upcie/memory/registry.hpp>
#include <upcie/nvme/controller.hpp>
#include <upcie/nvme/namespace.hpp>
#include <upcie/open.hpp>

using namespace upcie;

int main(int argc, char** argv) try {
    os::System& system = os::real_system();
    std::shared_ptr<pci::Function> function = open_function(system, argc > 1 ? argv[1] : "sim:size=64M").value();
    std::printf("%s: %s\n", function->path().c_str(), function->path_reason().c_str());
    auto controller = nvme::Controller::open(system, function).value();
    auto registry = memory::Registry::create(system, controller->address_space()).value();
    auto disk = nvme::Namespace::open(controller, Nsid{1}).value();
    auto data = memory::DmaBuffer::allocate(system, controller->address_space(), ByteCount{disk.block_size()}).value();
    auto registration = registry->register_buffer(data.buffer()).value();
    auto queue = controller->create_queue_pair({.registry = registry}).value();
    disk.read(queue, Lba{0}, 1, data.data()).value();
    std::printf("block 0 begins with byte %02x\n", std::to_integer<unsigned>(data.data()[0]));
} catch (const tl::bad_expected_access<upcie::Error>& failed) {
    std::fprintf(stderr, "%s\n", failed.error().message().c_str());
    return 1;
}
