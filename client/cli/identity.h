// SPDX-License-Identifier: Apache-2.0
// The commands that make certificates of a cluster's daemons. argv[0] is the command; each function
// returns the exit code. All but join need no cluster.
#ifndef FAIRWAY_CLIENT_CLI_IDENTITY_H_
#define FAIRWAY_CLIENT_CLI_IDENTITY_H_

namespace fairway {

// `fairway init DIRECTORY`: makes a CA, the controller's certificate, its settings file, its data
// directory with an admin's token and a file that has it, and prints what to do next. Replaces
// nothing.
int RunInit(int argc, const char* const* argv);
// `fairway issue NAME --from DIRECTORY`: makes what worker NAME needs, in a directory to be copied
// to its host. Replaces the worker's certificate if it has one.
int RunIssue(int argc, const char* const* argv);

// `fairway join CONTROLLER`: gets a worker's certificate from the controller, by a token, and
// writes a settings file for the worker.
int RunJoin(int argc, const char* const* argv);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_IDENTITY_H_
