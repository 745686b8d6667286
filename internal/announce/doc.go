// Package announce decides which prefixes of a user plane function BGP announces, and
// when it withdraws them: UE pools, and what sessions add to them (framed routes,
// delegated prefixes).
//
// Entry is what the configuration asks for, Health what N3 and N4 are like, Gate
// whether an entry is announced now. Prefixes, Faults and Gate.Next are pure
// functions. The package has no locks and no goroutines.
package announce
