# The course's commands. `make` alone lists them. Python 3.11, 3.12 or 3.13 is all that has to be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help lab test check run sync doctor reset grade matrix
help:
	@echo "make lab                 open JupyterLab on the first lesson, in a working copy"
	@echo "make test                run every check"
	@echo "make check LESSON=01     run the checks of one lesson"
	@echo "make run LESSON=01       execute a lesson headless into out/"
	@echo "make reset LESSON=01     restore a lesson in the working copy, keeping a backup"
	@echo "make sync                regenerate kernels, labs and canonical notebooks (authors)"
	@echo "make grade LAB=labs/01_roofline.ipynb [FROM=file or folder] [ARGS='--seed 3']   grade (teachers)"
	@echo "make matrix              the interpreter's tests on other versions of Triton and NumPy (authors)"
	@echo "make doctor              say what this machine has and what is missing"

# What a learner needs; what authors and teachers need comes on top.
$(VENV)/learner: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || \
	  { echo "error: $(PYTHON) is not Python 3.11, 3.12 or 3.13: install one and say make PYTHON=python3.12 lab" >&2; exit 2; }
	@test -x $(PY) || { echo "creating $(VENV) (a few minutes, once)"; $(PYTHON) -m venv $(VENV); }
	@$(PIP) -e .
	@touch $@
$(VENV)/staff: $(VENV)/learner
	@$(PIP) -e '.[authors,teachers]'
	@touch $@

lab: $(VENV)/learner
	@$(PY) -m utils.staff.work open
test: $(VENV)/staff
	@$(PY) -m pytest -n 2 --dist worksteal
check: $(VENV)/staff
	@$(PY) -m utils.staff.one "$(LESSON)"
run: $(VENV)/staff
	@$(PY) -m utils.staff.execute "$(LESSON)"
reset: $(VENV)/learner
	@$(PY) -m utils.staff.work reset "$(LESSON)"
sync: $(VENV)/staff
	@$(PY) -m utils.staff.sync
doctor: $(VENV)/learner
	@$(PY) -m utils.staff.doctor
grade: $(VENV)/learner
	@$(PY) -m utils.staff.grade "$(LAB)" $(if $(FROM),"$(FROM)") $(ARGS)
matrix: $(VENV)/staff
	@$(PY) -m utils.staff.matrix
