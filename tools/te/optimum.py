#!/usr/bin/env python3
"""Print the optimum of a linear program, a file in CPLEX's format, and the solver's version.

Needs highspy of PyPI. Above 10 MB the interior point method is taken without crossover: the
simplex method takes hours.
"""
import os
import sys

import highspy

solver = highspy.Highs()
solver.setOptionValue("output_flag", False)
if os.path.getsize(sys.argv[1]) > 10_000_000:
    solver.setOptionValue("solver", "ipm")
    solver.setOptionValue("run_crossover", "off")
solver.readModel(sys.argv[1])
solver.run()
status = solver.modelStatusToString(solver.getModelStatus())
if status != "Optimal":
    sys.exit(f"HiGHS finds no optimum: {status}")
print(solver.getInfo().objective_function_value, "HiGHS", solver.version())
