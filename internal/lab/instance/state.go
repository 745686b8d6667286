package instance

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

	"github.com/culvert-net/culvert/internal/lab/topology"
)

// State is what an instance made, written before it is made.
type State struct {
	Lab        string    `json:"lab"`
	Instance   string    `json:"instance"`
	Mark       string    `json:"mark"` // in every namespace of the instance
	Culvert    string    `json:"culvert"`
	Ready      bool      `json:"ready"`      // all of it is there
	Variant    string    `json:"variant"`    // that the nodes have
	Namespaces []string  `json:"namespaces"` // names
	Processes  []Process `json:"processes"`
	Pins       []string  `json:"pins"` // directories
	// Disks are directories, and Cgroups names, of nodes of kind kubelet.
	Disks   []string `json:"disks,omitempty"`
	Cgroups []string `json:"cgroups,omitempty"`
	// Pods that are attached, with their addresses.
	Pods map[string][]netip.Addr `json:"pods,omitempty"`
}

// load reads the state, if there is one.
func (in *Instance) load() error {
	text, err := os.ReadFile(in.Dir() + ".json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &in.State)
	}
	if err == nil && in.State.Lab != in.Topology.Name {
		err = fmt.Errorf("%s is an instance of lab %s: take it down with `culvert lab down %s --as %s`, or choose another name with --as",
			in.Name, in.State.Lab, in.State.Lab, in.Name)
	}
	return err
}

// Up returns the states of the instances that are there, by the names of their labs.
func Up() (map[string][]State, error) {
	files, err := filepath.Glob(filepath.Join(StateDir, "*.json"))
	if err != nil {
		return nil, err
	}
	up := map[string][]State{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) { // taken down meanwhile, or not ours to see
			continue
		}
		var s State
		if err == nil {
			err = json.Unmarshal(text, &s)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		up[s.Lab] = append(up[s.Lab], s)
	}
	return up, nil
}

// Begin starts a new state.
func (in *Instance) Begin() error {
	in.State = State{Lab: in.Topology.Name, Instance: in.Name, Culvert: in.Culvert, Variant: in.State.Variant,
		Mark: "culvert lab " + in.Name + " " + rand.Text()}
	for _, n := range in.Nodes {
		if err := os.MkdirAll(filepath.Join(in.Dir(), n.Name), 0o755); err != nil {
			return err
		}
	}
	return in.Save()
}

// Save writes the state file, whole or not at all.
func (in *Instance) Save() error {
	text, err := json.MarshalIndent(&in.State, "", "  ")
	if err != nil {
		return err
	}
	next := in.Dir() + ".json" + ".new"
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(next, in.Dir()+".json")
}

// SavePod writes the addresses of a pod that is attached to the state.
func SavePod(in *Instance, p *topology.Node, addresses []netip.Addr) error {
	if in.State.Pods == nil {
		in.State.Pods = map[string][]netip.Addr{}
	}
	in.State.Pods[p.Name] = addresses
	return in.Save()
}

// AddNew appends a name that is not in the list yet.
func AddNew(list []string, name string) []string {
	if slices.Contains(list, name) {
		return list
	}
	return append(list, name)
}
