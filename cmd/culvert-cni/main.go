// Culvert-cni is the CNI plugin that container runtimes start for each pod. It
// asks the agent, `culvert run`, over its Unix socket.
package main

import "github.com/culvert-net/culvert/internal/cni"

// version is set by the linker.
var version = "unknown"

func main() { cni.Main(version) }
