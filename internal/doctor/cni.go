package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/cni/install"
)

// plugins looks at what the container runtime finds. A node may have none yet, or
// have its pods attached by somebody else.
func (o *Overlay) plugins() []Check {
	if o.ConfDir == "" {
		return nil
	}
	return []Check{o.plugin(), o.chained(), o.writable(), o.first()}
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

func (o *Overlay) plugin() Check {
	c := Check{Name: "CNI plugin", Level: OK, Detail: filepath.Join(o.BinDir, install.Program)}
	if isProgram(c.Detail) {
		return c
	}
	c.Level, c.Detail = Warn, fmt.Sprintf("%s is not there: the runtime cannot attach pods", c.Detail)
	return c.fix("culvert cni install --bin-dir %s --conf-dir=", o.BinDir)
}

// chained are those that are put behind ours where they are there.
func (o *Overlay) chained() Check {
	c := Check{Name: "CNI plugins behind it", Level: OK, Detail: "portmap and bandwidth are there"}
	var lacking []string
	for name, does := range map[string]string{"portmap": "hostPort", "bandwidth": "limits of bandwidth"} {
		if !isProgram(filepath.Join(o.BinDir, name)) {
			lacking = append(lacking, fmt.Sprintf("%s is not there: no %s", name, does))
		}
	}
	if len(lacking) == 0 {
		return c
	}
	slices.Sort(lacking)
	c.Level, c.Detail = Warn, strings.Join(lacking, "; ")
	return c.advice("install the CNI project's plugins in %s", o.BinDir)
}

func (o *Overlay) writable() Check {
	c := Check{Name: "CNI configurations", Level: OK, Detail: o.ConfDir + " can be written to"}
	if info, err := os.Stat(o.ConfDir); err != nil || !info.IsDir() {
		c.Level, c.Detail = Warn, o.ConfDir+" is no folder: there is no container runtime yet, or it looks elsewhere"
		return c.advice("install a container runtime, or say where it looks: --cni-conf-dir")
	}
	if err := unix.Access(o.ConfDir, unix.W_OK); err != nil {
		c.Level, c.Detail = Fail, fmt.Sprintf("%s: %v: the node cannot become Ready", o.ConfDir, err)
		return c.advice("run as root, or mount it writable")
	}
	return c
}

// first: runtimes take the first configuration by name.
func (o *Overlay) first() Check {
	c := Check{Name: "CNI configuration", Level: OK, Detail: install.ConfFile + " is, or will be, the first"}
	files, err := os.ReadDir(o.ConfDir)
	if err != nil {
		return c // which is said above
	}
	for _, f := range files {
		name := f.Name()
		if ext := filepath.Ext(name); name < install.ConfFile && (ext == ".conflist" || ext == ".conf" || ext == ".json") {
			c.Level, c.Detail = Warn, fmt.Sprintf("%s comes before %s: the runtime takes that one", name, install.ConfFile)
			return c.advice("remove %s, unless it hands pods on to culvert", filepath.Join(o.ConfDir, name))
		}
	}
	return c
}
