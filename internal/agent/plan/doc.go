// Package plan derives the tables of the data path from the desired and the
// observed state, and the steps from one set of tables to the next. It writes
// nothing and needs no kernel.
//
// Its user
//
//  1. makes the next Goal from the desired and the observed state,
//  2. calls ScopeOf to find what the change from the present Goal can affect,
//  3. calls Goal.Derive, Goal.Diff and Goal.Validate, Compile and Steps with
//     that Scope, and
//  4. hands the steps to package apply.
//
// Every change passes through the same functions. A Scope only makes their input
// smaller: with the Scope of one policy they look at that policy, with the zero
// Scope at everything. The result is the same (TestScopeIsWhole).
//
// Nothing here locks or starts a goroutine. Goals and Tables never change once
// they are made.
package plan
