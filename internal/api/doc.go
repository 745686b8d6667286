// Package api is the management API: its server, which wraps an
// agent.Service, and the client that the command line uses. The messages are
// in proto/culvert/v1/culvert.proto, the code made from it in culvertv1.
//
// What can be configured is one thing in three spellings: the Go types of
// config.Config, the YAML file, and the messages. They have the same names, so
// one conversion through JSON serves them all, and whatever comes in here goes
// through the same strict decoder and the same validation as the file.
//
// The socket's permissions say who may call (0660: root and the group that
// owns it). A TCP listener on loopback is plain; any other needs TLS and a
// token, which config.Validate sees to before Listen does.
//
// A page of another machine reaches a socket by a Relay: a command beside the daemon, whose
// standard input and output carry the calls (RelayLimits.NewNodeProxy is the other end).
package api

//go:generate ../../tools/generate-proto.sh
