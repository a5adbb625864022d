// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/program_packer.h"

#include <utility>

#include "wire/link_codec.h"

namespace fairway {

void ProgramPacker::Pack(SessionId session, std::shared_ptr<const std::string> program,
                         v1::CompileOptions options, Packed packed) {
  if (program->size() <= kPackedAtOnce) return packed(PackCompileRequest(*program, options));
  auto pack = [&loop = loop_, program = std::move(program), options = std::move(options),
               packed = std::move(packed)]() mutable {
    Frame request = PackCompileRequest(*program, options);
    loop.Post("packed program",
              [program = std::move(program), request = std::move(request),
               packed = std::move(packed)]() mutable { packed(std::move(request)); });
  };
  pool_.Run(std::move(pack), session.value);
}

}  // namespace fairway
