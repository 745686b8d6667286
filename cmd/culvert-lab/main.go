// Culvert-lab is Culvert's laboratory: networks of namespaces, benchmarks and a
// small SMF. Users type `culvert lab`, `culvert bench` and `culvert smf`.
package main

import (
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/labcli"
)

// version is set by the linker.
var version = ""

func main() { cmdline.Main(version, labcli.New) }
