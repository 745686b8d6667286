package desired

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/config"
)

// Process is what only the start of the process reads. It comes from the file
// alone.
type Process struct {
	Limits  config.Limits  `json:"limits,omitzero"`
	API     config.API     `json:"api,omitzero"`
	Metrics config.Metrics `json:"metrics,omitzero"`
	Log     config.Log     `json:"log,omitzero"`
	UPF     config.UPF     `json:"upf,omitzero"`
	BGP     config.BGP     `json:"bgp,omitzero"`
	Overlay config.Overlay `json:"overlay,omitzero"`

	Liveness config.Liveness `json:"liveness,omitzero"`
}

// ProcessOf are the settings of a configuration.
func ProcessOf(c *config.Config) Process {
	return Process{Limits: c.Limits, API: c.API, Metrics: c.Metrics, Log: c.Log, UPF: c.UPF, BGP: c.BGP, Overlay: c.Overlay, Liveness: c.Liveness}
}

// State is what the file and the API ask for. Its values never change in place:
// a change makes a new State.
type State struct {
	File    []Resource // in the order of the file
	API     []Resource // in the order of kinds, then of keys
	Process Process
}

// Config is all of it: what Apply takes to get here.
func (s State) Config() *config.Config { return Config(slices.Concat(s.File, s.API), s.Process) }

// WithFile replaces what the file asks for. A resource of the API that the file
// has with the very same values belongs to the file from now on.
func (s State) WithFile(c *config.Config) State {
	next := State{File: flatten(c, OriginFile), Process: ProcessOf(c)}
	inFile := byRef(next.File)
	for _, r := range s.API {
		if f, both := inFile[r.Ref]; both && Same(f.Value, r.Value) {
			continue
		}
		next.API = append(next.API, r)
	}
	return next
}

// WithAPI adds resources through the API, or updates those that it added. It
// returns the names of the resources that it touches. Errors: ErrInvalid,
// ErrConflict.
func (s State) WithAPI(fragment *config.Config) (next State, touched []Ref, err error) {
	var unset config.Config
	unset.SetDefaults()
	if !Same(ProcessOf(fragment), ProcessOf(&unset)) {
		return State{}, nil, fmt.Errorf("%w: limits, api, metrics, log, upf, bgp and overlay are read from the configuration file only: change them there", ErrInvalid)
	}
	inFile, api := byRef(s.File), byRef(s.API)
	once := map[Ref]bool{}
	for _, r := range flatten(fragment, OriginAPI) {
		if _, ok := inFile[r.Ref]; ok {
			return State{}, nil, fmt.Errorf("%w: %s is in the configuration file: change it there and apply the file", ErrConflict, r.Ref)
		}
		if once[r.Ref] {
			return State{}, nil, fmt.Errorf("%w: %s is there twice: keep one", ErrInvalid, r.Ref)
		}
		once[r.Ref], api[r.Ref] = true, r
		touched = append(touched, r.Ref)
	}
	if len(touched) == 0 {
		return State{}, nil, fmt.Errorf("%w: there is nothing to add", ErrInvalid)
	}
	s.API = inOrder(api)
	return s, touched, nil
}

// Without deletes resources that the API added, and returns their names.
// Errors: ErrInvalid, ErrConflict, ErrNotFound.
func (s State) Without(refs []Ref) (next State, deleted []Ref, err error) {
	if len(refs) == 0 {
		return State{}, nil, fmt.Errorf("%w: there is nothing to delete", ErrInvalid)
	}
	inFile, api := byRef(s.File), byRef(s.API)
	for _, r := range refs {
		r = r.Normalize()
		if _, ok := api[r]; ok {
			delete(api, r)
			deleted = append(deleted, r)
			continue
		}
		if _, ok := inFile[r]; ok {
			return State{}, nil, fmt.Errorf("%w: %s is in the configuration file: take it out there and apply the file", ErrConflict, r)
		}
		return State{}, nil, fmt.Errorf("%w: %s", ErrNotFound, r)
	}
	s.API = inOrder(api)
	return s, deleted, nil
}

func byRef(list []Resource) map[Ref]Resource {
	out := make(map[Ref]Resource, len(list))
	for _, r := range list {
		out[r.Ref] = r
	}
	return out
}

func inOrder(m map[Ref]Resource) []Resource {
	out := slices.AppendSeq(make([]Resource, 0, len(m)), maps.Values(m))
	slices.SortFunc(out, func(a, b Resource) int {
		if k := slices.Index(Kinds, a.Kind) - slices.Index(Kinds, b.Kind); k != 0 {
			return k
		}
		return strings.Compare(a.Key, b.Key)
	})
	return out
}
