// Culvert-lab is Culvert's laboratory: networks of namespaces, benchmarks, a small SMF
// and a gNB. Users type `culvert lab`, `culvert bench`, `culvert smf` and `culvert gnb`.
package main

import (
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/labcli"
)

// version is set by the linker.
var version = ""

func main() { cmdline.Main(version, labcli.New) }
