// Package plan decides, and writes nothing: from the desired and the observed
// state it makes the tables that the data path is to hold, and from two such
// tables the steps from one to the other. All of it runs without a kernel.
//
// Its user
//
//  1. makes the next Goal: what is asked for and what is observed,
//  2. asks ScopeOf what the change from the present Goal can be about,
//  3. calls Goal.Derive, Goal.Diff and Goal.Validate, Compile and Steps with
//     that Scope, and
//  4. hands the steps to package apply.
//
// Each change passes the same functions. A Scope only makes their input
// smaller: with the Scope of one policy they look at that policy, with the zero
// Scope at everything, and the result is the same (TestScopeIsWhole).
//
// Nothing here locks or starts a goroutine. Goals and Tables never change once
// they are made.
package plan
