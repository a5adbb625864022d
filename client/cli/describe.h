// SPDX-License-Identifier: Apache-2.0
// `fairway describe`: all that the controller knows of one object. argv[0] is the command; the
// function returns the exit code.
#ifndef FAIRWAY_CLIENT_CLI_DESCRIBE_H_
#define FAIRWAY_CLIENT_CLI_DESCRIBE_H_

namespace fairway {

int RunDescribe(int argc, const char* const* argv);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_DESCRIBE_H_
