// Package usage measures what a session uses, reports it, and limits the rules of
// the data path so that reports come when they are due (TS 29.244 section 5.2.2).
//
// A Usage belongs to one session. The data path counts; the user brings its counts
// by Collect. Limit and Relimit say at which counts the data path has to notify
// us, or to stop a rule. Nothing here talks to the data path or to an SMF, and
// nothing locks: the session's lock guards its Usage.
//
// The life of a Usage:
//
//  1. New, or Decode after a restart;
//  2. Collect and then Examine, whenever Due says so or the data path notifies;
//  3. Taken or Retry, when the SMF has answered the reports;
//  4. Change, when the SMF modifies the session;
//  5. Last, when the session ends.
package usage
