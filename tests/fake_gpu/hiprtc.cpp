// SPDX-License-Identifier: BSD-3-Clause
// A library shaped like libhiprtc that knows one kernel, the one which the HIP flavour brings; hip.cpp loads what it
// "compiles". A part of libfake_hip_6, as AMD's is of libamdhip64 up to 6. Tests script failures by
// upcie_fake_hiprtc_fail(function, result).
#include <cstring>

#include "fake.hpp"
#include "gpu/hip/compiler.hpp"

namespace {

using upcie::gpu::hip::compiler_compilation;
using upcie::gpu::hip::compiler_invalid_option;
using upcie::gpu::hip::compiler_success;

struct Program {
    std::string source;
    std::string code;
    std::string log;
};

fake_gpu::Script& script() {
    static auto* const one = new fake_gpu::Script;
    return *one;
}

} // namespace

#define SCRIPTED(function)                                                                                             \
    if (const int status = script().take(function); status != compiler_success) {                                      \
        return status;                                                                                                 \
    }

FAKE_API void upcie_fake_hiprtc_fail(const char* function, int result) {
    script().fail(function, result);
}

FAKE_API const char* hiprtcGetErrorString(int status) {
    static const std::map<int, const char*> names{{compiler_success, "HIPRTC_SUCCESS"},
                                                  {compiler_invalid_option, "HIPRTC_ERROR_INVALID_OPTION"},
                                                  {compiler_compilation, "HIPRTC_ERROR_COMPILATION"},
                                                  {11, "HIPRTC_ERROR_INTERNAL_ERROR"}};
    const auto place = names.find(status);
    return place != names.end() ? place->second : nullptr;
}
FAKE_API int hiprtcCreateProgram(Program** program, const char* source, const char*, int, const char**, const char**) {
    SCRIPTED("hiprtcCreateProgram")
    *program = new Program{source, {}, {}};
    return compiler_success;
}
FAKE_API int hiprtcDestroyProgram(Program** program) {
    delete *program;
    *program = nullptr;
    return compiler_success;
}
FAKE_API int hiprtcCompileProgram(Program* program, int count, const char** options) {
    program->log = "the fake compiler's words";
    SCRIPTED("hiprtcCompileProgram")
    if (count > 1 || (count == 1 && std::string{options[0]} != "--offload-arch=gfx1101")) {
        return compiler_invalid_option;
    }
    if (program->source.find("extern \"C\" __global__ void upcie_read_dwords(") == std::string::npos) {
        return compiler_compilation;
    }
    program->code = "fake code for gfx1101";
    return compiler_success;
}
FAKE_API int hiprtcGetCodeSize(Program* program, std::size_t* size) {
    SCRIPTED("hiprtcGetCodeSize")
    *size = program->code.size() + 1;
    return compiler_success;
}
FAKE_API int hiprtcGetCode(Program* program, char* code) {
    SCRIPTED("hiprtcGetCode")
    std::memcpy(code, program->code.c_str(), program->code.size() + 1);
    return compiler_success;
}
FAKE_API int hiprtcGetProgramLogSize(Program* program, std::size_t* size) {
    SCRIPTED("hiprtcGetProgramLogSize")
    *size = program->log.size() + 1;
    return compiler_success;
}
FAKE_API int hiprtcGetProgramLog(Program* program, char* log) {
    SCRIPTED("hiprtcGetProgramLog")
    std::memcpy(log, program->log.c_str(), program->log.size() + 1);
    return compiler_success;
}
