package optimize

import (
	"fmt"
	"math"
	"time"

	"github.com/culvert-net/culvert/internal/te"
)

// suitability says which lists have what a class asks for.
type suitability struct {
	s     *solver
	class te.Class
	// allowed has the links that the class may take, and clear by destination and source the
	// flows that take no other; nil: it may take all.
	allowed, clear []bool
}

func newSuitability(s *solver, c te.Class) *suitability {
	u := &suitability{s: s, class: c}
	if c.Exclude == 0 && c.IncludeAny == 0 {
		return u
	}
	n := s.shares.nodes
	u.allowed, u.clear = make([]bool, len(s.g.Topology.Links)), make([]bool, n*n)
	for i, l := range s.g.Topology.Links {
		u.allowed[i] = l.Affinity&c.Exclude == 0 && (c.IncludeAny == 0 || l.Affinity&c.IncludeAny != 0)
	}
	for to := range n {
		s.g.All(to, u.allowed, u.clear[to*n:(to+1)*n])
	}
	return u
}

// suits says whether a list does, that leads to its end.
func (u *suitability) suits(from int, via int32, to int) bool {
	return u.affine(from, via, to) && (u.class.MaxDelay == 0 || u.longest(from, via, to) <= u.class.MaxDelay)
}

// affine says whether a list takes allowed links only.
func (u *suitability) affine(from int, via int32, to int) bool {
	if u.clear == nil {
		return true
	}
	n := u.s.shares.nodes
	enter, leave, link := u.s.legs(via)
	return u.clear[enter*n+from] && u.clear[to*n+leave] && (link < 0 || u.allowed[link])
}

// longest is the delay of the longest of a list's equal paths.
func (u *suitability) longest(from int, via int32, to int) time.Duration {
	enter, leave, link := u.s.legs(via)
	_, first := u.s.g.Delay(from, enter)
	_, second := u.s.g.Delay(leave, to)
	if link >= 0 {
		first += u.s.g.Topology.Links[link].Delay
	}
	return first + second
}

// problem says what speaks against all lists; empty: one suits.
func (u *suitability) problem(from, to int) string {
	if from == to {
		return "headend and endpoint are the same node"
	}
	if !u.s.g.Reaches(from, to) {
		return "no path leads there"
	}
	if u.suits(from, int32(to), to) {
		return ""
	}
	// All lists are looked at, those that do not suit too.
	all := &commodity{from: from, to: to, class: &suitability{s: u.s}}
	shortest, affine, suits, below := time.Duration(math.MaxInt64), false, false, math.Inf(1)
	u.s.delays.cheaper(all, &below, func(via int32, _ float64) {
		if u.affine(from, via, to) {
			affine, shortest = true, min(shortest, u.longest(from, via, to))
			suits = suits || u.suits(from, via, to)
		}
	})
	switch {
	case suits:
		return ""
	case affine:
		return fmt.Sprintf("the quickest list takes %v, more than max_delay: %v; it goes by the IGP", shortest, u.class.MaxDelay)
	}
	return "each list has a link with an affinity that the class excludes, or without one that it asks for; it goes by the IGP"
}
