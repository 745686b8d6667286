// Package ref counts who refers to a policy or a tunnel, so that neither goes while
// it is in use. It has no lock: the owners of the counts hold the data path's.
package ref

import "slices"

// User is what refers to a policy or a tunnel.
type User struct {
	Kind Kind
	Key  string
}

func (u User) String() string { return string(u.Kind) + " " + u.Key }

// Kind is the kind of a User.
type Kind string

// The kinds.
const (
	SID      Kind = "sid"
	Steering Kind = "steering"
	GTP4D    Kind = "h_m_gtp4_d"
	Tunnel   Kind = "tunnel"
	Session  Kind = "session"
)

// Users counts references: while an owner changes, it holds its new state and
// its former. The zero value has none.
type Users map[User]int

// Use adds a reference.
func (u *Users) Use(who User) {
	if *u == nil {
		*u = Users{}
	}
	(*u)[who]++
}

// Unuse ends one.
func (u *Users) Unuse(who User) {
	if (*u)[who]--; (*u)[who] <= 0 {
		delete(*u, who)
	}
}

// Any names one user, for messages.
func (u Users) Any() string {
	names := make([]string, 0, len(u))
	for who := range u {
		names = append(names, who.String())
	}
	return slices.Min(names)
}
