// SPDX-License-Identifier: BSD-3-Clause
#include <iostream>

#include "commands.hpp"

int main(int argument_count, char** arguments) {
    upcie::cli::Context context{std::cout, std::cerr, upcie::os::real_system(), {}, false};
    return upcie::cli::run(argument_count, arguments, context);
}
