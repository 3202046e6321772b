// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/gpu/open.hpp>

#include <cerrno>
#include <charconv>

#include <upcie/gpu/cuda.hpp>
#include <upcie/gpu/flavour.hpp>
#include <upcie/gpu/hip.hpp>

namespace upcie::gpu {

namespace {

template <class F>
std::shared_ptr<Runtime> runtime_of(F flavour) {
    return std::make_shared<FlavourRuntime<F>>(std::move(flavour));
}

} // namespace

Result<Name> Name::parse(std::string_view text) {
    const auto wrong = [&] {
        return fail(EINVAL, "choose a GPU", std::string{text},
                    "Write cuda or hip, with :N for another GPU than the first (cuda:1), or stub, with its manner "
                    "(stub:exact, stub:whole-object, stub:suballocated).");
    };
    const auto colon = text.find(':');
    const std::string_view flavour = text.substr(0, colon);
    Name name;
    if (flavour == "cuda") {
        name.flavour = Flavour::cuda;
    } else if (flavour == "hip") {
        name.flavour = Flavour::hip;
    } else if (flavour != "stub") {
        return wrong();
    }
    if (colon == std::string_view::npos) {
        return name;
    }
    const std::string_view rest = text.substr(colon + 1);
    if (name.flavour == Flavour::stub) {
        const auto manner = stub::parse_manner(rest);
        if (!manner) {
            return wrong();
        }
        name.manner = *manner;
        return name;
    }
    unsigned device = 0;
    const auto [end, problem] = std::from_chars(rest.data(), rest.data() + rest.size(), device);
    const bool plain = rest == "0" || !rest.starts_with('0'); // as everywhere on a command line
    if (problem != std::errc{} || end != rest.data() + rest.size() || !plain || device > 1023) {
        return wrong();
    }
    name.device = static_cast<int>(device);
    return name;
}

Result<std::shared_ptr<Runtime>> open(os::System& system, const Name& name) {
    switch (name.flavour) {
    case Name::Flavour::cuda: {
        cuda::Options options;
        options.device = name.device;
        return cuda::Cuda::open(system, options).map(runtime_of<cuda::Cuda>);
    }
    case Name::Flavour::hip: {
        hip::Options options;
        options.device = name.device;
        return hip::Hip::open(system, std::move(options)).map(runtime_of<hip::Hip>);
    }
    case Name::Flavour::stub:
        break;
    }
    stub::Options options;
    options.manner = name.manner;
    return stub::Stub::create(system, options).map(runtime_of<stub::Stub>);
}

} // namespace upcie::gpu
