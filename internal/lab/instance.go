package lab

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// Where labs keep what they are doing, and where their daemons pin.
const (
	stateDir = "/run/culvert/lab"
	pinDir   = "/sys/fs/bpf/culvert-lab"
)

// instance is a topology that is up, or about to be.
type instance struct {
	*topology.Topology
	name    string // the topology's, or what --as says
	culvert string // path of the binary
	state   state
	lock    *os.File
}

// state is what an instance made, written before it is made.
type state struct {
	Lab        string    `json:"lab"`
	Instance   string    `json:"instance"`
	Mark       string    `json:"mark"` // in every namespace of the instance
	Culvert    string    `json:"culvert"`
	Ready      bool      `json:"ready"`      // all of it is there
	Variant    string    `json:"variant"`    // that the nodes have
	Namespaces []string  `json:"namespaces"` // names
	Processes  []process `json:"processes"`
	Pins       []string  `json:"pins"` // directories
	// Disks are directories, and Cgroups names, of nodes of kind kubelet.
	Disks   []string `json:"disks,omitempty"`
	Cgroups []string `json:"cgroups,omitempty"`
	// Pods that are attached, with their addresses.
	Pods map[string][]netip.Addr `json:"pods,omitempty"`
}

// openInstance locks the instance name of topology t and reads its state. It
// must be closed.
func openInstance(t *topology.Topology, name, culvert string) (*instance, error) {
	if name == "" {
		name = t.Name
	}
	if !topology.NameForm.MatchString(name) {
		return nil, fmt.Errorf("--as: %q: use lower-case letters, digits and '-', at most 32", name)
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("labs make network namespaces: run as root")
	}
	in := &instance{Topology: t, name: name, culvert: culvert}
	if err := in.lockName(); err != nil {
		return nil, err
	}
	if err := in.load(); err != nil {
		return nil, errors.Join(err, in.close())
	}
	return in, nil
}

// load reads the state, if there is one.
func (in *instance) load() error {
	text, err := os.ReadFile(in.stateFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &in.state)
	}
	if err == nil && in.state.Lab != in.Topology.Name {
		err = fmt.Errorf("%s is an instance of lab %s: take it down with `culvert lab down %s --as %s`, or choose another name with --as",
			in.name, in.state.Lab, in.state.Lab, in.name)
	}
	return err
}

func (in *instance) stateFile() string { return filepath.Join(stateDir, in.name+".json") }

func (in *instance) lockFile() string { return filepath.Join(stateDir, in.name+".lock") }

func (in *instance) dir() string { return filepath.Join(stateDir, in.name) }

// file names a file of a node.
func (in *instance) file(n *topology.Node, name string) string {
	return filepath.Join(in.dir(), n.Name, name)
}

func (in *instance) namespace(n *topology.Node) namespace.Named {
	return namespace.Named{Name: "culvert-" + in.name + "-" + n.Name}
}

// pins is where the instance's daemons pin. While it is there no other instance
// takes pinDir for empty.
func (in *instance) pins() string { return filepath.Join(pinDir, in.name) }

func (in *instance) pinPath(n *topology.Node) string { return filepath.Join(in.pins(), n.Name) }

// makePins makes the directory. Another instance may be removing the one above
// it at the same time.
func (in *instance) makePins() error {
	var err error
	for range 5 {
		if err = os.MkdirAll(in.pins(), 0o700); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// ErrBusy says that an instance is somebody else's at the moment.
var ErrBusy = errors.New("another command is working on lab")

// lockName makes this process the only one that works on the name.
func (in *instance) lockName() error {
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return err
	}
	for {
		f, err := os.OpenFile(in.lockFile(), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			if errors.Is(err, unix.EWOULDBLOCK) {
				err = fmt.Errorf("%w %s: wait for it, or choose another name with --as", ErrBusy, in.name)
			}
			return errors.Join(err, f.Close())
		}
		// Whoever held the lock before may have removed the file: then this
		// is a lock on nothing.
		mine, err1 := f.Stat()
		named, err2 := os.Stat(in.lockFile())
		if err1 == nil && err2 == nil && os.SameFile(mine, named) {
			in.lock = f
			return nil
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
}

// close gives the name free. Directories that are empty by now are removed.
func (in *instance) close() error {
	err := errors.Join(os.Remove(in.lockFile()), in.lock.Close())
	for _, dir := range []string{stateDir, filepath.Dir(stateDir)} {
		if os.Remove(dir) != nil {
			break // in use
		}
	}
	return err
}

// begin starts a new state.
func (in *instance) begin() error {
	in.state = state{Lab: in.Topology.Name, Instance: in.name, Culvert: in.culvert, Variant: in.state.Variant,
		Mark: "culvert lab " + in.name + " " + rand.Text()}
	for _, n := range in.Nodes {
		if err := os.MkdirAll(filepath.Join(in.dir(), n.Name), 0o755); err != nil {
			return err
		}
	}
	return in.save()
}

// save writes the state file, whole or not at all.
func (in *instance) save() error {
	text, err := json.MarshalIndent(&in.state, "", "  ")
	if err != nil {
		return err
	}
	next := in.stateFile() + ".new"
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(next, in.stateFile())
}

// addNew appends a name that is not in the list yet.
func addNew(list []string, name string) []string {
	if slices.Contains(list, name) {
		return list
	}
	return append(list, name)
}

// without is the list without a name.
func without(list []string, name string) []string {
	return slices.DeleteFunc(list, func(s string) bool { return s == name })
}
