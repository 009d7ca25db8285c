"""Random task bodies: loops, conditions and arithmetic around stream operations, as MLIR text."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from hypothesis import strategies as st


@dataclass
class Writer:
    """Writes one body; streams are arguments %s0, %s1, ...; `x` is a tensor, `local` an array of the body."""

    draw: st.DrawFn
    gets: list[int]
    puts: list[int]
    by_data: bool
    lines: list[str] = field(default_factory=list)
    sites: int = 0
    ops: int = 0
    fresh: count[int] = field(default_factory=count)

    def name(self) -> str:
        return f"%v{next(self.fresh)}"

    def line(self, text: str) -> None:
        self.lines.append(text)

    def block(self, depth: int, values: list[str], indices: list[str]) -> None:
        values, indices = list(values), list(indices)
        for _ in range(self.draw(st.integers(1, 4))):
            self.statement(depth, values, indices)

    def statement(self, depth: int, values: list[str], indices: list[str]) -> None:
        kinds = ["cost", "work", "store", "local", "relu"]
        kinds += ["get", "get"] * bool(self.gets) + ["put", "put"] * bool(self.puts)
        kinds += ["for", "if", "while", "sum"] * (depth > 0) + ["decide"] * (depth > 0 and self.by_data)
        getattr(self, f"write_{self.draw(st.sampled_from(kinds))}")(depth, values, indices)

    def write_cost(self, depth: int, values: list[str], indices: list[str]) -> None:
        self.line(f'"df.cost"() {{site = {self.sites}}} : () -> ()')
        self.sites += 1

    def write_get(self, depth: int, values: list[str], indices: list[str]) -> None:
        value = self.name()
        self.line(f'{value} = "df.get"(%s{self.draw(st.sampled_from(self.gets))}) {{op = {self.ops}}} : (index) -> i32')
        self.ops += 1
        values.append(value)

    def write_put(self, depth: int, values: list[str], indices: list[str]) -> None:
        stream, value = self.draw(st.sampled_from(self.puts)), self.draw(st.sampled_from(values))
        self.line(f'"df.put"(%s{stream}, {value}) {{op = {self.ops}}} : (index, i32) -> ()')
        self.ops += 1

    def write_work(self, depth: int, values: list[str], indices: list[str]) -> None:
        a, b, c = self.draw(st.sampled_from(values)), self.draw(st.sampled_from(values)), self.name()
        self.line(f"{c} = arith.muli {a}, {b} : i32")
        values.append(c)

    def write_store(self, depth: int, values: list[str], indices: list[str]) -> None:
        a, b, i = self.name(), self.name(), self.draw(st.sampled_from(indices))
        self.line(f"{a} = memref.load %x[{i}] : memref<8xi32>")
        self.line(f"{b} = arith.addi {a}, {self.draw(st.sampled_from(values))} : i32")
        self.line(f"memref.store {b}, %x[{i}] : memref<8xi32>")

    def write_local(self, depth: int, values: list[str], indices: list[str]) -> None:
        i = self.draw(st.sampled_from(indices))
        self.line(f"memref.store {self.draw(st.sampled_from(values))}, %local[{i}] : memref<8xi32>")
        value = self.name()
        self.line(f"{value} = memref.load %local[{i}] : memref<8xi32>")
        values.append(value)

    def write_relu(self, depth: int, values: list[str], indices: list[str]) -> None:
        a, positive, result = self.draw(st.sampled_from(values)), self.name(), self.name()
        self.line(f"{positive} = arith.cmpi sgt, {a}, %c0 : i32")
        self.line(f"{result} = scf.if {positive} -> i32 {{ scf.yield {a} : i32 }} else {{ scf.yield %c0 : i32 }}")
        values.append(result)

    def write_for(self, depth: int, values: list[str], indices: list[str]) -> None:
        i = self.name()
        self.line(f"affine.for {i} = 0 to {self.draw(st.integers(0, 4))} {{")
        self.block(depth - 1, values, [*indices, i])
        self.line("}")

    def write_sum(self, depth: int, values: list[str], indices: list[str]) -> None:
        total, part, i, a = (self.name() for _ in range(4))
        start = self.draw(st.sampled_from(values))
        self.line(f"{total} = affine.for {i} = 0 to 3 iter_args({part} = {start}) -> i32 {{")
        self.block(depth - 1, [*values, part], [*indices, i])
        self.line(f"{a} = arith.addi {part}, %c1 : i32")
        self.line(f"affine.yield {a} : i32 }}")
        values.append(total)

    def write_if(self, depth: int, values: list[str], indices: list[str]) -> None:
        test = self.name()
        self.line(f"{test} = arith.cmpi slt, {self.draw(st.sampled_from(indices))}, %two : index")
        self.line(f"scf.if {test} {{")
        self.block(depth - 1, values, indices)
        self.line("} else {")
        self.block(depth - 1, values, indices)
        self.line("}")

    def write_while(self, depth: int, values: list[str], indices: list[str]) -> None:
        """A loop whose counter lives in an array of the body."""
        now, next_, more, counter = (self.name() for _ in range(4))
        self.line(f"{counter} = memref.alloc() : memref<1xi32>")
        self.line(f"memref.store %c0, {counter}[%zero] : memref<1xi32>")
        self.line("scf.while : () -> () {")
        self.line(f"{now} = memref.load {counter}[%zero] : memref<1xi32>")
        self.line(f"{more} = arith.cmpi slt, {now}, %c3 : i32")
        self.line(f"scf.condition({more}) }} do {{")
        self.block(depth - 1, values, indices)
        self.line(f"{next_} = arith.addi {now}_again, %c1 : i32")
        self.lines.insert(-1, f"{now}_again = memref.load {counter}[%zero] : memref<1xi32>")
        self.line(f"memref.store {next_}, {counter}[%zero] : memref<1xi32>")
        self.line("scf.yield }")

    def write_decide(self, depth: int, values: list[str], indices: list[str]) -> None:
        """Control flow that depends on values."""
        odd, bit = self.name(), self.name()
        self.line(f"{bit} = arith.andi {self.draw(st.sampled_from(values))}, %c1 : i32")
        self.line(f"{odd} = arith.cmpi eq, {bit}, %c1 : i32")
        self.line(f"scf.if {odd} {{")
        self.block(depth - 1, values, indices)
        self.line("}")

    def text(self, symbol: str, streams: int) -> str:
        self.block(3, ["%c1", "%c3"], ["%zero", "%one"])
        arguments = ", ".join(f"%s{i}: index" for i in range(streams))
        constants = [f"%c{i} = arith.constant {i} : i32" for i in (0, 1, 3)]
        constants += [f"%{n} = arith.constant {i} : index" for i, n in enumerate(("zero", "one", "two"))]
        body = "\n".join([*constants, "%local = memref.alloc() : memref<8xi32>", *self.lines])
        return f"func.func @{symbol}(%x: memref<8xi32>, {arguments}) {{\n{body}\nreturn }}"
