// Package request reads Session Establishment and Session Modification Requests
// (TS 29.244 sections 7.5.2 and 7.5.4) into sessions.
//
// The IEs of each group are a table (type group): a row has the IE's number and
// name (go-pfcp's constant), whether it is mandatory, who reads it, and what an
// update with an empty value clears. An IE without a row is ignored, a row
// without a reader is refused with Cause 76. rules.go has the rules, pdi.go and
// forwarding.go what is nested in them, session.go the requests themselves.
//
// To read a request:
//
//  1. Make a Builder for the session: an empty one, or a copy of the session as
//     it is. The Builder copies a rule list before it changes it.
//  2. Call Establishment or Modification, then References.
//  3. Look at Builder.Err: the answer to a request that must be refused.
//  4. Choose what Builder.Wants leaves to the user plane.
//
// The package has no goroutines and no locks: one goroutine uses a Builder.
package request
