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
	path := filepath.Join(o.BinDir, install.Program)
	return check("CNI plugin", path, problem{!isProgram(path), Warn, path + " is not there: the runtime cannot attach pods",
		command("culvert cni install --bin-dir %s --conf-dir=", o.BinDir)})
}

// chained are those that are put behind ours where they are there.
func (o *Overlay) chained() Check {
	var lacking []string
	for name, does := range map[string]string{"portmap": "hostPort", "bandwidth": "limits of bandwidth"} {
		if !isProgram(filepath.Join(o.BinDir, name)) {
			lacking = append(lacking, fmt.Sprintf("%s is not there: no %s", name, does))
		}
	}
	slices.Sort(lacking)
	return check("CNI plugins behind it", "portmap and bandwidth are there", problem{len(lacking) > 0, Warn, strings.Join(lacking, "; "),
		advice("install the CNI project's plugins in %s", o.BinDir)})
}

func (o *Overlay) writable() Check {
	info, err := os.Stat(o.ConfDir)
	refused := unix.Access(o.ConfDir, unix.W_OK)
	return check("CNI configurations", o.ConfDir+" can be written to",
		problem{err != nil || !info.IsDir(), Warn, o.ConfDir + " is no folder: there is no container runtime yet, or it looks elsewhere",
			advice("install a container runtime, or say where it looks: --cni-conf-dir")},
		problem{refused != nil, Fail, fmt.Sprintf("%s: %v: the node cannot become Ready", o.ConfDir, refused),
			advice("run as root, or mount it writable")})
}

// first: runtimes take the first configuration by name.
func (o *Overlay) first() Check {
	files, _ := os.ReadDir(o.ConfDir) // writable reports an error
	i := slices.IndexFunc(files, func(f os.DirEntry) bool {
		return f.Name() < install.ConfFile && slices.Contains([]string{".conflist", ".conf", ".json"}, filepath.Ext(f.Name()))
	})
	name := ""
	if i >= 0 {
		name = files[i].Name()
	}
	return check("CNI configuration", install.ConfFile+" is, or will be, the first",
		problem{i >= 0, Warn, fmt.Sprintf("%s comes before %s: the runtime takes that one", name, install.ConfFile),
			advice("remove %s, unless it hands pods on to culvert", filepath.Join(o.ConfDir, name))})
}
