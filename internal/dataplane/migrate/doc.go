// Package migrate fills the tables of this build with what those of another build
// hold, whose entries have other fields: by the names that BTF has for them.
//
//  1. A Set says where entries go whose table has another size (Moves), and what refers to
//     them (Edit). Its callers know what the tables mean.
//  2. Copy fills a table that no packet reads yet.
//  3. Volumes and Counts note what each entry had counted then, and add what packets counted
//     in the former table since, once they all meet the new one.
//
// Fields that only one build has are left out, or 0. A field that gets another meaning
// therefore gets another name.
package migrate
